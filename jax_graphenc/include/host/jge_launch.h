// include/host/jge_launch.h: a function that launches a kernel, and what the image's table says
// about it.
#ifndef JGE_LAUNCH_H_
#define JGE_LAUNCH_H_

namespace jge {

template <class F>
struct Launcher {
  static_assert(sizeof(F) == 0, "not a kernel: the type must be void(...)");
};

// For a kernel of type void(Args...); each is copied once per launch and once per thread.
template <class... Args>
struct Launcher<void (*)(Args...)> {
  static_assert((... && !std::is_reference_v<Args>), "a kernel cannot take a reference");
  static_assert((... && std::is_trivially_copyable_v<Args>),
                "a kernel's parameters must be trivially copyable");

  // One block after the other, one thread after the other, x innermost. The kernel is inlined, so
  // this is a plain loop.
  template <auto kernel>
  __attribute__((noinline)) static void run_grid(Args... args) {
    const dim3 grid = gridDim, block = blockDim;
    for (unsigned bz = 0; bz < grid.z; ++bz) {
      for (unsigned by = 0; by < grid.y; ++by) {
        for (unsigned bx = 0; bx < grid.x; ++bx) {
          blockIdx = {bx, by, bz};
          for (unsigned tz = 0; tz < block.z; ++tz) {
            for (unsigned ty = 0; ty < block.y; ++ty) {
              for (unsigned tx = 0; tx < block.x; ++tx) {
                threadIdx = {tx, ty, tz};
                kernel(args...);
              }
            }
          }
        }
      }
    }
  }

  template <auto kernel, size_t... index>
  static void unpack(void* const* params, std::index_sequence<index...>) {
    static_cast<void>(params);
    run_grid<kernel>(*static_cast<const std::remove_cv_t<Args>*>(params[index])...);
  }

  template <auto kernel>
  static int32_t launch(const JgeHostLaunch* launch) {
    gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]};
    blockDim = {launch->block[0], launch->block[1], launch->block[2]};
    Failure here;
    here.message = launch->message;
    here.message_size = launch->message_size;
    failure = &here;
    if (setjmp(here.escape) != 0) return here.result;
    unpack<kernel>(launch->params, std::index_sequence_for<Args...>{});
    return kSuccess;
  }

  // Offsets and sizes, in bytes, in a block where each parameter stands at its natural alignment.
  static constexpr uint32_t param_count = sizeof...(Args);
  struct Params {
    JgeHostParam at[param_count + 1];
  };
  static constexpr Params layout() {
    Params params{};
    const uint32_t sizes[] = {uint32_t(sizeof(Args))..., 0};
    const uint32_t alignments[] = {uint32_t(alignof(Args))..., 1};
    uint32_t end = 0;
    for (uint32_t i = 0; i < param_count; ++i) {
      end = (end + alignments[i] - 1) / alignments[i] * alignments[i];
      params.at[i] = {end, sizes[i]};
      end += sizes[i];
    }
    return params;
  }
  static constexpr Params params = layout();
};
template <class... Args>
struct Launcher<void (*)(Args...) noexcept> : Launcher<void (*)(Args...)> {};

}  // namespace jge

// One row of the kernel table. What stands after the user's source, whose macros may have any name,
// is only this name and those of host_image.h.
template <class F, F kernel>
static inline JgeHostKernel jge_row(const char* name) {
  using Launcher = jge::Launcher<F>;
  return {name, typeid(F).name(), &Launcher::template launch<kernel>, Launcher::param_count,
          Launcher::params.at};
}

// The one symbol of an image. The generated source defines it, after this declaration.
#ifdef __clang__
#define JGE_EXPORT __attribute__((visibility("default"), used))
#else
#define JGE_EXPORT __attribute__((visibility("default"), used, externally_visible))
#endif
extern "C" JGE_EXPORT const JgeHostImage jge_host_image;

#endif  // JGE_LAUNCH_H_

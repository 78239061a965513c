// include/host/jge_launch.h: a function that launches a kernel, and what the image's table says
// about it.
#ifndef JGE_LAUNCH_H_
#define JGE_LAUNCH_H_

namespace jge {

// The result of a launch that has failed. Where threads cannot go on, which the driver has said,
// the block is added.
JGE_UNCHECKED __attribute__((noinline, cold)) static int32_t failed(const Failure& failure) {
  if (stand_in) drop_stand_in();
  if (failure.result != kSuccess) return failure.result;
  const size_t length = failure.message_size == 0 ? 0 : strlen(failure.message);
  if (length < failure.message_size) {
    snprintf(failure.message + length, failure.message_size - length, " in block (%u,%u,%u)",
             blockIdx.x, blockIdx.y, blockIdx.z);
  }
  return kLaunchFailed;
}

// Until the threads that wait have left the kernel too.
JGE_UNCHECKED __attribute__((noinline)) static void finish_block() {
  const Myself me;
  me.woke(launch->calls->finish(launch->threads));
}

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
  // where nothing in it waits this is a plain loop. Where a thread has waited, other stacks have
  // run the threads behind it: those enter here with `rest`, at a thread of the current block.
  template <auto kernel>
  __attribute__((noinline)) static void run(bool rest, uint3 first, Args... args) {
    const dim3 grid = gridDim, block = blockDim;
    for (unsigned bz = 0; bz < grid.z; ++bz) {
      for (unsigned by = 0; by < grid.y; ++by) {
        for (unsigned bx = 0; bx < grid.x; ++bx) {
          if (!rest) {
            blockIdx = {bx, by, bz};
            race::begin_block();
          }
          waited = false;
          unsigned tx = first.x, ty = first.y, tz = first.z;
          for (; tz < block.z; ++tz, ty = 0) {
            for (; ty < block.y; ++ty, tx = 0) {
              for (; tx < block.x; ++tx) {
                threadIdx = {tx, ty, tz};
#ifdef JGE_CHECKED
                // The checks read it, and are not there yet when stores are moved out of loops.
                __asm__ volatile("" ::: "memory");
#endif
                atomics_done = 0;
                kernel(args...);
                race::pause();
                if (waited) goto block_done;
              }
            }
          }
        block_done:
          if (rest) return;
          if (waited) finish_block();
        }
      }
    }
  }

  template <auto kernel, size_t... index>
  JGE_UNCHECKED static void unpack(bool rest, uint3 first, void* const* params,
                                   std::index_sequence<index...>) {
    static_cast<void>(params);
    run<kernel>(rest, first, *static_cast<const std::remove_cv_t<Args>*>(params[index])...);
  }

  template <auto kernel>
  JGE_UNCHECKED static int32_t begin(const JgeHostLaunch* what) {
#ifdef JGE_CHECKED
    stack_end = uintptr_t(__builtin_frame_address(0));
    launch = nullptr;  // the last one is gone, and constructors below are checked
#endif
    gridDim = {what->grid[0], what->grid[1], what->grid[2]};
    blockDim = {what->block[0], what->block[1], what->block[2]};
    launch = what;
    dynamic_shared = what->shared;
    for (const Dynamic* dynamic = dynamics; dynamic; dynamic = dynamic->next) dynamic->set();
    Failure here;
    here.message = what->message;
    here.message_size = what->message_size;
    here.result = kSuccess;
    failure = &here;
    if (setjmp(here.escape) != 0) return failed(here);
    unpack<kernel>(false, {}, what->params, std::index_sequence_for<Args...>{});
    if (stand_in && drop_stand_in()) {
      snprintf(here.message, here.message_size, "%s", JGE_NO_SHARED);
      return kLaunchFailed;
    }
    return kSuccess;
  }

  template <auto kernel>
  JGE_UNCHECKED static void go_on(const JgeHostLaunch* what, uint32_t thread) {
#ifdef JGE_CHECKED
    stack_end = uintptr_t(__builtin_frame_address(0));
#endif
    const uint3 first = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
                         thread / blockDim.x / blockDim.y};
    unpack<kernel>(true, first, what->params, std::index_sequence_for<Args...>{});
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
  return {name,
          typeid(F).name(),
          &Launcher::template begin<kernel>,
          &Launcher::template go_on<kernel>,
          Launcher::param_count,
          Launcher::params.at};
}

#ifdef JGE_CHECKED
#define JGE_IS_CHECKED 1
#else
#define JGE_IS_CHECKED 0
#endif

// The one symbol of an image. The generated source defines it, after this declaration.
#ifdef __clang__
#define JGE_EXPORT __attribute__((visibility("default"), used))
#else
#define JGE_EXPORT __attribute__((visibility("default"), used, externally_visible))
#endif
extern "C" JGE_EXPORT const JgeHostImage jge_host_image;

#endif  // JGE_LAUNCH_H_

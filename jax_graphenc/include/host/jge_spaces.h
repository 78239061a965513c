// include/host/jge_spaces.h: what CUDA asks and says of an address, and of the optimizer.
#ifndef JGE_SPACES_H_
#define JGE_SPACES_H_

namespace jge {

// The thread-local memory of this image, where static shared memory is.
struct SharedSegment {
  uintptr_t begin;
  size_t bytes;
};
static int find_shared_segment(dl_phdr_info* object, size_t, void* found) {
  const auto here = uintptr_t(&find_shared_segment);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || here - begin >= segment.p_memsz) continue;
    for (int j = 0; j < object->dlpi_phnum; ++j) {
      if (object->dlpi_phdr[j].p_type != PT_TLS) continue;
      *static_cast<SharedSegment*>(found) = {uintptr_t(object->dlpi_tls_data),
                                             object->dlpi_phdr[j].p_memsz};
    }
    return 1;
  }
  return 0;
}

// Static shared memory of checked images is not told from the image's other variables.
static inline bool is_shared(const void* pointer) {
  const auto at = uintptr_t(pointer), dynamic = uintptr_t(dynamic_shared);
  if (dynamic && at - dynamic < launch->shared_bytes) return true;
  static thread_local SharedSegment segment;
  if (!segment.begin) dl_iterate_phdr(find_shared_segment, &segment);
  return at - segment.begin < segment.bytes;
}
// Behind a call, so that the memory of the caller lies above the frame.
__attribute__((noinline)) static bool is_local(const void* pointer) {
  // A thread of the driver's has 640 KB of stack, and CUDA's 512 KB of local memory.
  return uintptr_t(pointer) - uintptr_t(__builtin_frame_address(0)) < 512 * 1024;
}

}  // namespace jge

static inline unsigned int __isShared(const void* p) { return jge::is_shared(p); }
static inline unsigned int __isLocal(const void* p) {
  return !jge::is_shared(p) && jge::is_local(p);
}
static inline unsigned int __isGlobal(const void* p) {
  return !jge::is_shared(p) && !jge::is_local(p);
}

// There is one address space.
#define JGE_CONVERT(space)                                                            \
  static inline size_t __cvta_generic_to_##space(const void* p) { return size_t(p); } \
  static inline void* __cvta_##space##_to_generic(size_t p) { return (void*)p; }
JGE_CONVERT(global)
JGE_CONVERT(shared)
JGE_CONVERT(local)
JGE_CONVERT(constant)
JGE_CONVERT(grid_constant)
#undef JGE_CONVERT

#ifndef __clang__
#define __builtin_assume(condition) ((condition) ? (void)0 : __builtin_unreachable())
#endif
#define __prof_trigger(number) ((void)0)
static inline void __pm0() {}
static inline void __pm1() {}
static inline void __pm2() {}
static inline void __pm3() {}

#endif  // JGE_SPACES_H_

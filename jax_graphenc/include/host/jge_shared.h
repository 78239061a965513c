// include/host/jge_shared.h: dynamic shared memory. What a source declares as `extern __shared__ T
// s[];` is made a pointer before it is compiled, by these.
#ifndef JGE_SHARED_H_
#define JGE_SHARED_H_

namespace jge {

// A pointer outside of any function, to be set when a kernel is launched.
struct Dynamic {
  const Dynamic* next;
  void (*set)();
  explicit Dynamic(void (*set)());
};
static const Dynamic* dynamics;

static thread_local void* dynamic_shared;

inline Dynamic::Dynamic(void (*set)()) : next(dynamics), set(set) { dynamics = this; }

// What a kernel is given that declares dynamic shared memory and has none, as it may: as much as a
// GPU has at most, in a pattern that shows whether it was used.
static constexpr size_t kStandInBytes = 227 * 1024;
static constexpr unsigned char kStandInByte = 0xa5;
static thread_local unsigned char* stand_in;

JGE_UNCHECKED __attribute__((noinline, cold)) static void* make_stand_in() {
  if (!stand_in) {
    stand_in = static_cast<unsigned char*>(aligned_alloc(128, kStandInBytes));
    if (stand_in) memset(stand_in, kStandInByte, kStandInBytes);
  }
  return stand_in;
}

// At the end of a launch. Whether the kernel has used it.
JGE_UNCHECKED __attribute__((noinline, cold)) static bool drop_stand_in() {
  // All bytes are like the first, if each is like the one before it.
  const bool used =
      stand_in[0] != kStandInByte || memcmp(stand_in, stand_in + 1, kStandInBytes - 1);
  free(stand_in);
  stand_in = nullptr;
  return used;
}

#define JGE_NO_SHARED "uses dynamic shared memory, and the launch has none: pass shared_mem="

#ifdef JGE_CHECKED
// A variable whose place the compiler does not know, so that it checks each access.
template <class T>
__attribute__((always_inline)) static inline T& opaque(T& variable) {
  T* place = &variable;
  __asm__("" : "+r"(place));
  return *place;
}
#endif

}  // namespace jge

template <class T>
static inline T* jge_dynamic_shared() {
  void* const given = jge::dynamic_shared;
  return static_cast<T*>(given ? given : jge::make_stand_in());
}

#endif  // JGE_SHARED_H_

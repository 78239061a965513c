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

}  // namespace jge

template <class T>
static inline T* jge_dynamic_shared() {
  return static_cast<T*>(jge::dynamic_shared);
}

#endif  // JGE_SHARED_H_

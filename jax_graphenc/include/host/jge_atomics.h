// include/host/jge_atomics.h: atomicAdd and the rest, for every type of 2, 4 or 8 bytes.
//
// Truly atomic, because kernels of several OS threads may share memory; relaxed, as in CUDA. A
// volatile object may be given, as in locks.
#ifndef JGE_ATOMICS_H_
#define JGE_ATOMICS_H_

namespace jge {

template <size_t bytes>
struct BitsOf;
template <>
struct BitsOf<2> {
  using type = uint16_t;
};
template <>
struct BitsOf<4> {
  using type = uint32_t;
};
template <>
struct BitsOf<8> {
  using type = uint64_t;
};

// The same bytes as another type of the same size.
template <class To, class From>
static inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof(To));
  return to;
}

// A thread that has done so many atomic operations may be waiting for another: that one gets its
// turn. Counted from where the thread began, so that kernels that only add never come here.
static thread_local unsigned int atomics_done;
static inline void let_others_run() {
  if (__builtin_expect((++atomics_done & 4095) == 0, 0)) yield();
}

// Replaces *p by f(*p); returns what *p was. Compares bits, so that a NaN does not loop for ever.
template <class T, class F>
static inline T atomic_update(T* p, F f) {
  let_others_run();
  const race::Atomic atomic;
  using Bits = typename BitsOf<sizeof(T)>::type;
  Bits* bits = reinterpret_cast<Bits*>(p);
  Bits old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    const T value = bit_cast<T>(old);
    const T next = f(value);
    if (__atomic_compare_exchange_n(bits, &old, bit_cast<Bits>(next), true, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
      return value;
    }
  }
}

// Keeps a parameter out of template argument deduction: atomicAdd(float*, 1) adds 1.0f.
template <class T>
struct Identity {
  using type = T;
};
template <class T>
using same = typename Identity<T>::type;

}  // namespace jge

#define JGE_ATOMIC_AS(name, T_v)                                 \
  template <class T>                                             \
  static inline T name(T* p, jge::same<T> v) {                   \
    return jge::atomic_update(p, [v](T old) { return T(T_v); }); \
  }
// With the _block and _system variants, which are the same thing here.
#define JGE_ATOMIC(name, T_v)      \
  JGE_ATOMIC_AS(name, T_v)         \
  JGE_ATOMIC_AS(name##_block, T_v) \
  JGE_ATOMIC_AS(name##_system, T_v)

JGE_ATOMIC(atomicAdd, old + v)
JGE_ATOMIC(atomicSub, old - v)
JGE_ATOMIC(atomicMin, v < old ? v : old)
JGE_ATOMIC(atomicMax, old < v ? v : old)
JGE_ATOMIC(atomicAnd, old& v)
JGE_ATOMIC(atomicOr, old | v)
JGE_ATOMIC(atomicXor, old ^ v)
JGE_ATOMIC(atomicInc, old >= v ? T(0) : old + 1)
JGE_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)

#undef JGE_ATOMIC
#undef JGE_ATOMIC_AS

// Not an update: it may well be the first to write there.
template <class T>
static inline T atomicExch(T* p, jge::same<T> v) {
  jge::let_others_run();
  const jge::race::Atomic atomic(true);
  using Bits = typename jge::BitsOf<sizeof(T)>::type;
  return jge::bit_cast<T>(
      __atomic_exchange_n(reinterpret_cast<Bits*>(p), jge::bit_cast<Bits>(v), __ATOMIC_RELAXED));
}
template <class T>
static inline T atomicExch_block(T* p, jge::same<T> v) {
  return atomicExch(p, v);
}
template <class T>
static inline T atomicExch_system(T* p, jge::same<T> v) {
  return atomicExch(p, v);
}

template <class T>
static inline T atomicCAS(T* p, jge::same<T> expected, jge::same<T> desired) {
  jge::let_others_run();
  const jge::race::Atomic atomic(true);
  using Bits = typename jge::BitsOf<sizeof(T)>::type;
#ifdef JGE_CHECKED
  // The compiler takes what follows for a write alone.
  __atomic_load_n(reinterpret_cast<Bits*>(p), __ATOMIC_RELAXED);
#endif
  Bits old = jge::bit_cast<Bits>(expected);
  __atomic_compare_exchange_n(reinterpret_cast<Bits*>(p), &old, jge::bit_cast<Bits>(desired), false,
                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return jge::bit_cast<T>(old);
}
template <class T>
static inline T atomicCAS_block(T* p, jge::same<T> expected, jge::same<T> desired) {
  return atomicCAS(p, expected, desired);
}
template <class T>
static inline T atomicCAS_system(T* p, jge::same<T> expected, jge::same<T> desired) {
  return atomicCAS(p, expected, desired);
}

#endif  // JGE_ATOMICS_H_

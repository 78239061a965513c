// include/host/jge_wait.h: where threads wait for each other: barriers, warp functions, votes and
// shuffles. The driver keeps the waiting threads (host_image.h); this is what a kernel calls.
#ifndef JGE_WAIT_H_
#define JGE_WAIT_H_

namespace jge {

// Where a call stands in the user's source: as a default argument it is the caller's line.
struct Place {
  const char* file;
  int line;
  constexpr Place(const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : file(file), line(line) {}
};

// What is a thread's own, for when others have run on this OS thread.
struct Myself {
  const uint3 index = threadIdx;
#ifdef JGE_CHECKED
  const uintptr_t end = stack_end;
#endif
  JGE_UNCHECKED void woke(int32_t goes_on) const {
    threadIdx = index;
#ifdef JGE_CHECKED
    stack_end = end;
#endif
    waited = true;
    if (!goes_on) leave();
  }
};

JGE_UNCHECKED __attribute__((noinline)) static JgeHostVotes wait_at_barrier(bool yes,
                                                                            const char* what,
                                                                            Place place) {
  const Myself me;
  const JgeHostPlace here = {what, place.file, place.line};
  JgeHostVotes votes;
  race::pause();
  me.woke(launch->calls->barrier(launch->threads, thread_number(), yes, &votes, &here));
  race::passed_barrier();
  return votes;
}

JGE_UNCHECKED __attribute__((noinline)) static JgeHostLanes wait_for_lanes(
    unsigned int mask, const void* value, uint32_t bytes, const char* what, Place place) {
  const Myself me;
  const JgeHostPlace here = {what, place.file, place.line};
  JgeHostLanes lanes;
  uint32_t time = 0;
  const race::Meeting* const meeting = race::arrive(mask, &time);
  me.woke(
      launch->calls->exchange(launch->threads, thread_number(), mask, value, bytes, &lanes, &here));
  race::met(meeting, time, lanes.mask);
  return lanes;
}

__attribute__((always_inline)) static inline JgeHostVotes barrier(bool yes, const char* what,
                                                                  Place place) {
  const JgeHostVotes votes = wait_at_barrier(yes, what, place);
  race::check_again();
  return votes;
}
__attribute__((always_inline)) static inline JgeHostLanes exchange(unsigned int mask,
                                                                   const void* value,
                                                                   uint32_t bytes, const char* what,
                                                                   Place place) {
  const JgeHostLanes lanes = wait_for_lanes(mask, value, bytes, what, place);
  race::check_again();
  return lanes;
}

JGE_UNCHECKED __attribute__((noinline)) static unsigned int active(Place place) {
  const Myself me;
  const JgeHostPlace here = {"__activemask()", place.file, place.line};
  unsigned int mask;
  race::pause();
  me.woke(launch->calls->active(launch->threads, thread_number(), &mask, &here));
  return mask;
}

JGE_UNCHECKED __attribute__((noinline)) static void yield() {
  if (!launch->calls) return;
  const Myself me;
  const JgeHostPlace here = {"an atomic operation", "", 0};
  race::pause();
  me.woke(launch->calls->yield(launch->threads, thread_number(), &here));
}

JGE_UNCHECKED static inline void copy_slot(void* to, const JgeHostLanes& lanes, unsigned int lane,
                                           size_t bytes) {
  memcpy(to, lanes.slots + JGE_HOST_SLOT * lane, bytes);
}
JGE_UNCHECKED static inline bool slot_is(const JgeHostLanes& lanes, unsigned int lane,
                                         const void* value, size_t bytes) {
  return memcmp(lanes.slots + JGE_HOST_SLOT * lane, value, bytes) == 0;
}

template <class T>
static inline JgeHostLanes exchange_value(unsigned int mask, const T& value, const char* what,
                                          Place place) {
  static_assert(sizeof(T) <= JGE_HOST_SLOT, "a shuffled value may have 32 bytes");
  return exchange(mask, &value, sizeof(T), what, place);
}

// What a lane gave; one's own value where it gave none, as is often so on a GPU.
template <class T>
static inline T value_of(const JgeHostLanes& lanes, unsigned int lane, const T& own) {
  if (!(lanes.mask >> (lane & 31) & 1)) return own;
  T value;
  copy_slot(&value, lanes, lane & 31, sizeof(T));
  return value;
}

template <class T>
static inline T shuffle(unsigned int mask, T value, unsigned int from, const char* what,
                        Place place) {
  return value_of(exchange_value(mask, value, what, place), from, value);
}

JGE_UNCHECKED static inline JgeHostLanes ballot(unsigned int mask, bool yes, const char* what,
                                                Place place, unsigned int* result) {
  const unsigned char mine = yes;
  const JgeHostLanes lanes = exchange(mask, &mine, 1, what, place);
  *result = 0;
  for (unsigned int i = 0; i < 32; ++i) {
    if (lanes.mask >> i & 1) *result |= (unsigned int)lanes.slots[JGE_HOST_SLOT * i] << i;
  }
  return lanes;
}

// In the order of the lanes.
template <class T, class F>
static inline T reduce(unsigned int mask, T value, F f, const char* what, Place place) {
  const JgeHostLanes lanes = exchange_value(mask, value, what, place);
  unsigned int rest = lanes.mask;
  T result = value_of(lanes, __builtin_ctz(rest), value);
  while (rest &= rest - 1) result = f(result, value_of(lanes, __builtin_ctz(rest), value));
  return result;
}

}  // namespace jge

static inline void __syncthreads(jge::Place place = {}) {
  jge::barrier(false, "__syncthreads()", place);
}
static inline int __syncthreads_count(int predicate, jge::Place place = {}) {
  return int(jge::barrier(predicate != 0, "__syncthreads_count()", place).yes);
}
static inline int __syncthreads_and(int predicate, jge::Place place = {}) {
  const JgeHostVotes votes = jge::barrier(predicate != 0, "__syncthreads_and()", place);
  return votes.yes == votes.threads;
}
static inline int __syncthreads_or(int predicate, jge::Place place = {}) {
  return jge::barrier(predicate != 0, "__syncthreads_or()", place).yes != 0;
}

static inline void __syncwarp(unsigned int mask = ~0u, jge::Place place = {}) {
  const char nothing = 0;
  jge::exchange(mask, &nothing, 1, "__syncwarp()", place);
}
static inline unsigned int __activemask(jge::Place place = {}) { return jge::active(place); }

static inline unsigned int __ballot_sync(unsigned int mask, int predicate, jge::Place place = {}) {
  unsigned int yes;
  jge::ballot(mask, predicate != 0, "__ballot_sync()", place, &yes);
  return yes;
}
static inline int __any_sync(unsigned int mask, int predicate, jge::Place place = {}) {
  unsigned int yes;
  jge::ballot(mask, predicate != 0, "__any_sync()", place, &yes);
  return yes != 0;
}
static inline int __all_sync(unsigned int mask, int predicate, jge::Place place = {}) {
  unsigned int yes;
  return jge::ballot(mask, predicate != 0, "__all_sync()", place, &yes).mask == yes;
}
static inline int __uni_sync(unsigned int mask, int predicate, jge::Place place = {}) {
  unsigned int yes;
  const unsigned int all = jge::ballot(mask, predicate != 0, "__uni_sync()", place, &yes).mask;
  return yes == 0 || yes == all;
}

// A width below 32 makes parts of a warp that shuffle each by itself.
template <class T>
static inline T __shfl_sync(unsigned int mask, T value, int from, int width = 32,
                            jge::Place place = {}) {
  const unsigned int parts = ~(unsigned int)(width - 1);
  return jge::shuffle(mask, value, (jge::lane() & parts) | ((unsigned int)from & ~parts),
                      "__shfl_sync()", place);
}
template <class T>
static inline T __shfl_up_sync(unsigned int mask, T value, unsigned int by, int width = 32,
                               jge::Place place = {}) {
  const unsigned int lane = jge::lane(), within = lane & (unsigned int)(width - 1);
  return jge::shuffle(mask, value, within < by ? lane : lane - by, "__shfl_up_sync()", place);
}
template <class T>
static inline T __shfl_down_sync(unsigned int mask, T value, unsigned int by, int width = 32,
                                 jge::Place place = {}) {
  const unsigned int lane = jge::lane(), within = lane & (unsigned int)(width - 1);
  const bool there = by < (unsigned int)width - within;
  return jge::shuffle(mask, value, there ? lane + by : lane, "__shfl_down_sync()", place);
}
// Parts behind the lane's own cannot be read, those before it can.
template <class T>
static inline T __shfl_xor_sync(unsigned int mask, T value, int with, int width = 32,
                                jge::Place place = {}) {
  const unsigned int lane = jge::lane(), from = lane ^ (unsigned int)with;
  const bool there = from <= (lane | (unsigned int)(width - 1));
  return jge::shuffle(mask, value, there ? from : lane, "__shfl_xor_sync()", place);
}

#define JGE_REDUCE(name, a_b)                                                                 \
  template <class T>                                                                          \
  static inline T __reduce_##name##_sync(unsigned int mask, T value, jge::Place place = {}) { \
    return jge::reduce(                                                                       \
        mask, value, [](T a, T b) { return T(a_b); }, "__reduce_" #name "_sync()", place);    \
  }
JGE_REDUCE(add, a + b)
JGE_REDUCE(min, b < a ? b : a)
JGE_REDUCE(max, a < b ? b : a)
JGE_REDUCE(and, a& b)
JGE_REDUCE(or, a | b)
JGE_REDUCE(xor, a ^ b)
#undef JGE_REDUCE

template <class T>
static inline unsigned int __match_any_sync(unsigned int mask, T value, jge::Place place = {}) {
  const JgeHostLanes lanes = jge::exchange_value(mask, value, "__match_any_sync()", place);
  unsigned int equal = 0;
  for (unsigned int i = 0; i < 32; ++i) {
    if (!(lanes.mask >> i & 1)) continue;
    equal |= (unsigned int)jge::slot_is(lanes, i, &value, sizeof(T)) << i;
  }
  return equal;
}
template <class T>
static inline unsigned int __match_all_sync(unsigned int mask, T value, int* all,
                                            jge::Place place = {}) {
  const JgeHostLanes lanes = jge::exchange_value(mask, value, "__match_all_sync()", place);
  *all = 1;
  for (unsigned int i = 0; i < 32; ++i) {
    if (!(lanes.mask >> i & 1)) continue;
    if (!jge::slot_is(lanes, i, &value, sizeof(T))) *all = 0;
  }
  return *all ? lanes.mask : 0;
}

static inline void __nanosleep(unsigned int) { jge::yield(); }

#endif  // JGE_WAIT_H_

// include/host/jge_race.h: races between threads of a block, where a kernel is compiled with
// checks.
//
// Two threads race if they access one place, at least one of them writes, and no barrier that both
// took part in lies between. Of each four bytes the last write and the last reads by two threads
// are kept, with how far their threads had come: the barriers of the block that a thread has
// passed, and its steps from one meeting of a warp's lanes (__syncwarp and the functions with a
// mask) to the next, of which each lane knows the others' as a vector clock does (L. Lamport, Time,
// clocks, and the ordering of events in a distributed system, 1978; C. Fidge, 1988). What is kept
// in a table of fixed size may be displaced, so that a race may be missed; none is told that is
// none.
//
// The compiler puts no check before a second access of one place in a row, such as the store of
// `s[i] += a`. So what a thread has loaded is kept until it waits or ends: if it differs by then,
// the thread has written it, since no other has run.
//
// Atomic operations race with nothing. Threads that take locks, by atomicCAS or atomicExch, are
// taken to order their accesses so. That several threads write what stands there already is no
// race.
#ifndef JGE_RACE_H_
#define JGE_RACE_H_

namespace jge::race {

#if defined(JGE_CHECKED) && !defined(__clang__)

static constexpr uint32_t kThreads = 1024, kLanes = 32, kWarps = kThreads / kLanes, kMasks = 8;
static constexpr int kPlacesLog2 = 16;

struct Access {
  uint32_t code;  // from where the image begins; 0: there was none
  uint32_t barriers, step;
  uint16_t thread;
  uint8_t bytes;  // a bit for each of the four
};
struct alignas(64) Place {
  uintptr_t granule;
  uint64_t block;  // what it says is of this block
  Access write, reads[2];
};
static Place places[1 << kPlacesLog2];

// How far a thread is: the barriers of the block that it has passed, and its step. Of the lanes of
// its warp the steps that are behind it: those before `known`.
struct Progress {
  uint32_t barriers, step, known[kLanes];
  bool locks;
};
static Progress progress[kThreads];

// The lanes that meet with one mask: how often each has come, and its step then, of the last two
// times.
struct Meeting {
  uint32_t mask, times[kLanes], steps[2][kLanes];
};
static Meeting meetings[kWarps][kMasks];
static bool lost;  // a warp meets with more masks than are kept

static uint64_t block = 0;
static bool waits;               // a thread of this block has waited, or has locked
static thread_local int atomic;  // within an atomic operation

// A write where another thread has written: no race if it writes what stands there.
struct Doubt {
  uintptr_t at;  // 0: there is none
  size_t bytes;
  unsigned char before[16];
  const void* code;
  Access other;
  uint3 thread;
};
static Doubt doubt;

// What the running thread has loaded since it last waited.
struct Load {
  uintptr_t at;
  const void* code;
  uint32_t bytes;
  unsigned char value[16];
};
static constexpr uint32_t kLoads = 4096;
static Load loads[kLoads];
static uint32_t load_count;

JGE_UNCHECKED static void begin_block() {
  ++block;
  // A launch that failed may have left them.
  doubt.at = 0;
  load_count = 0;
  atomic = 0;
  if (!waits) return;
  const uint32_t threads = blockDim.x * blockDim.y * blockDim.z;
  memset(static_cast<void*>(progress), 0, threads * sizeof(Progress));
  memset(static_cast<void*>(meetings), 0, (threads + kLanes - 1) / kLanes * sizeof meetings[0]);
  waits = lost = false;
}

// Lies within jge_check.h: the name of what is at a place.
static const char* name_of(uintptr_t at, uintptr_t* begin);

static const char* image();  // where it begins, likewise

JGE_UNCHECKED static uint32_t offset_of(const void* code) {
  return uint32_t(static_cast<const char*>(code) - image());
}

[[noreturn]] JGE_UNCHECKED __attribute__((cold)) static void tell(uintptr_t at, size_t bytes,
                                                                  const char* does, const char* did,
                                                                  const void* code,
                                                                  const Access& other) {
  uintptr_t begin = at;
  const char* name = name_of(at, &begin);
  const uint32_t thread = other.thread;
  char text[400];
  snprintf(text, sizeof text,
           "race: %s %zu bytes at offset %zu of '%s', which thread (%u,%u,%u) %s in {code %p} "
           "without a barrier between: put __syncthreads() there, or __syncwarp() within a warp,",
           does, bytes, size_t(at - begin), name, thread % blockDim.x,
           thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y, did,
           static_cast<const void*>(image() + other.code));
  *launch->where = code;
  fail(kLaunchFailed, text, nullptr, 0);
}

// Decides about the last write, which has taken place by now.
JGE_UNCHECKED static void settle() {
  if (!doubt.at) return;
  const Doubt found = doubt;
  doubt.at = 0;
  if (memcmp(found.before, reinterpret_cast<const void*>(found.at), found.bytes) == 0) return;
  threadIdx = found.thread;
  tell(found.at, found.bytes, "writes", "has written", found.code, found.other);
}

JGE_UNCHECKED static bool is_ordered(const Access& before, uint32_t thread) {
  if (before.thread == thread || !before.code) return true;
  const Progress& me = progress[thread];
  if (before.barriers < me.barriers) return true;
  if (me.locks && progress[before.thread].locks) return true;
  if (before.thread / kLanes != thread / kLanes) return false;
  return lost || before.step < me.known[before.thread % kLanes];
}

JGE_UNCHECKED static void note_access(uintptr_t at, size_t bytes, bool writes, const void* code) {
  const uint32_t thread = thread_number();
  const Progress& me = progress[thread];
  for (uintptr_t granule = at / 4; granule <= (at + bytes - 1) / 4; ++granule) {
    // What lies side by side is kept side by side.
    Place& place = places[granule % (1 << kPlacesLog2)];
    if (place.granule != granule || place.block != block) {
      place = {granule, block, {}, {}};
    }
    uint8_t mask = 15;
    if (granule == at / 4) mask &= uint8_t(15 << at % 4);
    if (granule == (at + bytes - 1) / 4) mask &= uint8_t(15 >> (3 - (at + bytes - 1) % 4));
    const Access mine = {offset_of(code), me.barriers, me.step, uint16_t(thread), mask};
    const Access& write = place.write;
    const bool clashes = (write.bytes & mask) && !is_ordered(write, thread);
    if (!writes) {
      if (clashes) tell(at, bytes, "reads", "has written", code, write);
      if (place.reads[0].thread != thread) place.reads[1] = place.reads[0];
      place.reads[0] = mine;
      continue;
    }
    for (const Access& read : place.reads) {
      if ((read.bytes & mask) && !is_ordered(read, thread)) {
        tell(at, bytes, "writes", "has read", code, read);
      }
    }
    if (clashes && bytes <= sizeof doubt.before) {
      doubt = {at, bytes, {}, code, write, threadIdx};
      memcpy(doubt.before, reinterpret_cast<const void*>(at), bytes);
    }
    place.write = mine;
  }
}

// Before the running thread lets others run, and at its end: what it has loaded and written since.
JGE_UNCHECKED static void pause() {
  settle();
  while (load_count > 0) {
    const Load& load = loads[--load_count];
    if (memcmp(load.value, reinterpret_cast<const void*>(load.at), load.bytes) == 0) continue;
    note_access(load.at, load.bytes, true, load.code);
    // It differs, so that there is no doubt.
    if (doubt.at) doubt.before[0] = ~*reinterpret_cast<const unsigned char*>(load.at);
    settle();
  }
}

JGE_UNCHECKED static void note(uintptr_t at, size_t bytes, bool writes, const void* code) {
  settle();
  if (atomic) return;
  note_access(at, bytes, writes, code);
  if (writes || bytes > sizeof loads->value) return;
  if (load_count == kLoads) pause();
  Load& load = loads[load_count++];
  load.at = at;
  load.code = code;
  load.bytes = uint32_t(bytes);
  memcpy(load.value, reinterpret_cast<const void*>(at), bytes);
}

JGE_UNCHECKED static void passed_barrier() {
  waits = true;
  ++progress[thread_number()].barriers;
}

// A thread comes to a meeting: where it is kept, or null.
JGE_UNCHECKED static Meeting* arrive(uint32_t mask, uint32_t* time) {
  pause();
  waits = true;
  const uint32_t thread = thread_number();
  Meeting* found = nullptr;
  for (Meeting& meeting : meetings[thread / kLanes]) {
    if (meeting.mask != 0 && meeting.mask != mask) continue;
    found = &meeting;
    break;
  }
  if (!found) {
    lost = true;
    return nullptr;
  }
  found->mask = mask;
  *time = found->times[thread % kLanes]++ % 2;
  found->steps[*time][thread % kLanes] = progress[thread].step;
  return found;
}
JGE_UNCHECKED static void met(const Meeting* meeting, uint32_t time, uint32_t lanes) {
  if (!meeting) return;
  const uint32_t thread = thread_number(), first = thread / kLanes * kLanes;
  Progress& me = progress[thread];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    if (me.known[lane] <= meeting->steps[time][lane])
      me.known[lane] = meeting->steps[time][lane] + 1;
    if (lanes == ~0u) continue;
    // What the others know of further lanes; of what they have done since, too much.
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (lanes >> i & 1) continue;
      if (me.known[i] < progress[first + lane].known[i])
        me.known[i] = progress[first + lane].known[i];
    }
  }
  ++me.step;
}

// The compiler checks what it has checked before only behind a call that may free memory.
__attribute__((always_inline)) static inline void check_again() {
  void* nothing;
  __asm__ volatile("" : "=r"(nothing) : "0"(nullptr));
  free(nothing);
}

// Around an atomic operation.
struct Atomic {
  JGE_UNCHECKED explicit Atomic(bool locks = false) {
    pause();  // what differs afterwards may be the operation's
    if (locks && launch) waits = progress[thread_number()].locks = true;
    ++atomic;
    __asm__ volatile("" ::: "memory");  // before the checks, which are not there yet
  }
  JGE_UNCHECKED ~Atomic() {
    __asm__ volatile("" ::: "memory");
    --atomic;
  }
};

#else

struct Meeting;
static inline void begin_block() {}
static inline void pause() {}
static inline void passed_barrier() {}
static inline Meeting* arrive(uint32_t, uint32_t*) { return nullptr; }
static inline void met(const Meeting*, uint32_t, uint32_t) {}
static inline void check_again() {}
struct Atomic {
  explicit Atomic(bool = false) {}
};

#endif

}  // namespace jge::race

#endif  // JGE_RACE_H_

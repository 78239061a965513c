// include/host/jge_thread.h: which CUDA thread runs, and how it fails.
//
// Everything is per OS thread, so that several OS threads can run one image at once. No address of
// threadIdx or its kin is taken here, so the compiler may keep them in registers.
#ifndef JGE_THREAD_H_
#define JGE_THREAD_H_

static thread_local uint3 threadIdx, blockIdx;
static thread_local dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

namespace jge {

// The codes that a launch returns; the values are the driver API's CUresult.
enum Result : int32_t { kSuccess = 0, kAssert = 710, kLaunchFailed = 719 };

static thread_local const JgeHostLaunch* launch;

// The thread that runs on this stack has waited: others have run the rest of the loop over the
// block's threads, or do.
static thread_local bool waited;

#ifdef JGE_CHECKED
// Where the memory of a kernel on this stack ends, in the direction of its caller.
static thread_local uintptr_t stack_end;
#endif

// Ends the launch, on the stack that it was called on.
// longjmp and not throw: it also leaves a noexcept function, needs no unwinder, and destructors
// have nothing to release in device code.
[[noreturn]] __attribute__((noinline, cold)) static void leave();

static inline unsigned int thread_number() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
static inline unsigned int lane() { return thread_number() & 31; }

// Where a failing thread goes, and what it leaves there.
struct Failure {
  jmp_buf escape;
  Result result;
  char* message;
  size_t message_size;
};
static thread_local Failure* failure;

[[noreturn]] JGE_UNCHECKED static void leave() { longjmp(failure->escape, 1); }

[[noreturn]] JGE_UNCHECKED __attribute__((noinline, cold)) static void fail(Result result,
                                                                            const char* what,
                                                                            const char* file,
                                                                            int line) {
  Failure& f = *failure;
  if (f.message_size != 0) {
    char place[300] = "";
    if (file) snprintf(place, sizeof place, "%s:%d: ", file, line);
    snprintf(f.message, f.message_size, "%s%s in block (%u,%u,%u), thread (%u,%u,%u)", place, what,
             blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  }
  f.result = result;
  if (launch->calls) launch->calls->leave(launch->threads);
  leave();
}

}  // namespace jge

// A macro for the sake of __FILE__ and __LINE__, as assert is.
#define __trap() jge::fail(jge::kLaunchFailed, "__trap()", __FILE__, __LINE__)
#define __brkpt() __builtin_trap()

// Nanoseconds of a clock that never goes back; CUDA counts its own clock's cycles.
static inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}
// Other OS threads may run other launches on the same memory.
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#endif  // JGE_THREAD_H_

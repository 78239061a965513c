// plugin/driver/host/state.h: the software driver's one lock, what it guards, and what is per
// thread.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "driver/host/stream.h"
#include "driver/host_driver.h"

namespace jge::host {

struct State {
  std::mutex mutex;                  // guards all below, and all objects; not held by kernels
  std::condition_variable_any idle;  // a queue finished a task
  bool initialized = false;
  std::array<std::unique_ptr<Context>, kMaxDevices> contexts;
  std::unordered_map<CUdeviceptr, std::shared_ptr<const Memory>> allocations;
  std::vector<std::shared_ptr<Capture>> captures;
  std::uint64_t next_id = 1;
  std::optional<std::mt19937_64> order;
  LiveHandles live;
};
State& state();

// Releases the lock while this thread runs a kernel or loads an image.
struct Unlocked {
  Unlocked() { state().mutex.unlock(); }
  ~Unlocked() { state().mutex.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
};

inline std::atomic<bool> execution_enabled{true};
inline thread_local Context* thread_context = nullptr;
inline thread_local CUstreamCaptureMode thread_capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
inline thread_local std::string thread_fault;
inline thread_local Expected thread_expected;
inline thread_local bool in_host_function = false;  // which may not call the driver

// The implementations, one per function of the table, called with the lock held.
namespace api {
#define JGE_DECLARE(function, version) std::remove_pointer_t<PFN_##function##_v##version> function;
JGE_DRIVER_FUNCTIONS(JGE_DECLARE)
#undef JGE_DECLARE
}  // namespace api

}  // namespace jge::host

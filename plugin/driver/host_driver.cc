// plugin/driver/host_driver.cc: the software driver's table, and what tests can tell it.
#include "driver/host_driver.h"

#include <array>
#include <atomic>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "driver/host_state.h"

namespace jge {
namespace host {
namespace {

enum class Call : std::size_t {
#define JGE_ENUMERATE(function, version) function,
  JGE_DRIVER_FUNCTIONS(JGE_ENUMERATE)
#undef JGE_ENUMERATE
};

constexpr std::array kNames = {
#define JGE_NAME(function, version) #function,
    JGE_DRIVER_FUNCTIONS(JGE_NAME)
#undef JGE_NAME
};

// Whether calls are recorded or made to fail: all that an unwatched call looks at.
constinit std::atomic<bool> watched{false};

struct Watch {
  std::mutex mutex;
  bool recording = false;
  std::vector<std::string> calls;
  struct Failing {
    int left = 0;  // calls until it fails; 0: never
    CUresult result = CUDA_SUCCESS;
  };
  std::array<Failing, kNames.size()> failing;
  Failing any;

  void update() {
    const bool fails =
        std::any_of(failing.begin(), failing.end(), [](const Failing& f) { return f.left != 0; });
    watched = recording || fails || any.left != 0;
  }
};

Watch& watch() {
  static Watch& watch = *new Watch;  // never destroyed: threads may outlive statics
  return watch;
}

std::optional<CUresult> observe(Call call) {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  const auto index = static_cast<std::size_t>(call);
  if (w.recording) w.calls.emplace_back(kNames[index]);
  const bool destroys = std::string_view(kNames[index]).find("Destroy") != std::string_view::npos;
  for (Watch::Failing* failing : {&w.failing[index], &w.any}) {
    if (failing == &w.any && destroys) continue;
    if (failing->left == 0 || --failing->left > 0) continue;
    w.update();
    return failing->result;
  }
  return std::nullopt;
}

constexpr bool needs_initialization(Call call) {
  return call != Call::cuInit && call != Call::cuDriverGetVersion && call != Call::cuGetErrorName &&
         call != Call::cuGetErrorString;
}

// The one way into every function.
template <Call call, auto implementation>
struct Thunk;

template <Call call, class... Args, CUresult (*implementation)(Args...)>
struct Thunk<call, implementation> {
  static CUresult enter(Args... args) noexcept {
    try {
      if (watched.load(std::memory_order_relaxed)) {
        if (const auto forced = observe(call)) return *forced;
      }
      if (needs_initialization(call) && in_host_function) return CUDA_ERROR_NOT_PERMITTED;
      const std::lock_guard lock(state().mutex);
      if (needs_initialization(call) && !state().initialized) return CUDA_ERROR_NOT_INITIALIZED;
      return implementation(args...);
    } catch (const Failure& failure) {
      return failure.result;
    } catch (const std::bad_alloc&) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    } catch (...) {
      return CUDA_ERROR_UNKNOWN;
    }
  }
};

Driver make_table() {
  Driver table;
  table.name = "host";
  table.fault = &host::take_fault;
  table.expect = &host::expect;
#define JGE_FILL(function, version) table.function = &Thunk<Call::function, &api::function>::enter;
  JGE_DRIVER_FUNCTIONS(JGE_FILL)
#undef JGE_FILL
  return table;
}

}  // namespace

State& state() {
  static State& state = *new State;  // never destroyed: threads may outlive statics
  return state;
}

void set_order_seed(std::optional<std::uint64_t> seed) {
  const std::lock_guard lock(state().mutex);
  state().order.reset();
  if (seed) state().order.emplace(*seed);
}

void set_execution(bool enabled) { execution_enabled = enabled; }

void fail_call(const std::string& function, int nth, CUresult result) {
  if (nth < 0) throw std::invalid_argument("fail_call: nth counts from 1, and 0 clears");
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  if (function == "*") {
    w.any = {nth, result};
  } else {
    const auto name = std::find(kNames.begin(), kNames.end(), std::string_view(function));
    if (name == kNames.end()) {
      throw std::invalid_argument("fail_call: the driver table has no function \"" + function +
                                  "\"; write it without version suffix, or \"*\" for any");
    }
    w.failing[static_cast<std::size_t>(name - kNames.begin())] = {nth, result};
  }
  w.update();
}

void record_calls(bool enabled) {
  Watch& w = watch();
  const std::lock_guard lock(w.mutex);
  w.recording = enabled;
  w.update();
}

std::vector<std::string> take_calls() {
  const std::lock_guard lock(watch().mutex);
  return std::exchange(watch().calls, {});
}

LiveHandles live_handles() {
  const std::lock_guard lock(state().mutex);
  return state().live;
}

void expect(std::span<const Extent> extents, std::shared_ptr<std::vector<UnsetRead>> reads) {
  thread_expected.extents.assign(extents.begin(), extents.end());
  thread_expected.unset_reads = std::move(reads);
}

std::string take_fault() { return std::exchange(thread_fault, {}); }

}  // namespace host

const Driver& host_driver() {
  static const Driver table = host::make_table();
  return table;
}

}  // namespace jge

// plugin/driver/host/table.cc: the software driver's table: one way into every function.
#include <mutex>
#include <new>

#include "driver/host/state.h"
#include "driver/host/watch.h"

namespace jge {
namespace host {
namespace {

constexpr bool needs_initialization(Call call) {
  return call != Call::cuInit && call != Call::cuDriverGetVersion && call != Call::cuGetErrorName &&
         call != Call::cuGetErrorString;
}

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
}  // namespace host

const Driver& host_driver() {
  static const Driver table = host::make_table();
  return table;
}

}  // namespace jge

// plugin/driver/host/state.cc: the one state, and what is asked of it and told to it from outside.
#include "driver/host/state.h"

#include <utility>

#include "driver/fork.h"

namespace jge::host {

State& state() {
  static constinit PerProcess<State> state;
  return state.get();
}

void set_order_seed(std::optional<std::uint64_t> seed) {
  const std::lock_guard lock(state().mutex);
  state().order.reset();
  if (seed) state().order.emplace(*seed);
}

void set_execution(bool enabled) { execution_enabled = enabled; }

LiveHandles live_handles() {
  const std::lock_guard lock(state().mutex);
  return state().live;
}

void expect(std::span<const Extent> extents, std::shared_ptr<std::vector<UnsetRead>> reads) {
  thread_expected.extents.assign(extents.begin(), extents.end());
  thread_expected.unset_reads = std::move(reads);
}

std::string take_fault() { return std::exchange(thread_fault, {}); }

}  // namespace jge::host

// plugin/core/sinks/kernel_times.cc: how long each kernel takes, measured with events.
#include "core/sinks/kernel_times.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/base/stats.h"

namespace jge {
namespace {

std::mutex mutex;

// By program and node. Never destroyed, as threads may still run at exit.
auto& table() {
  static auto* const times = new std::map<std::pair<std::string, std::string>, KernelTime>();
  return *times;
}

void take(const std::string& program, const std::string& node, double milliseconds) {
  KernelTime& time = table()[{program, node}];
  if (time.calls == 0) time = {program, node, 0, 0, milliseconds, milliseconds};
  ++time.calls;
  time.total += milliseconds;
  time.least = std::min(time.least, milliseconds);
  time.most = std::max(time.most, milliseconds);
}

}  // namespace

std::vector<KernelTime> kernel_times() {
  std::vector<KernelTime> times;
  {
    std::lock_guard lock(mutex);
    for (const auto& [key, time] : table()) times.push_back(time);
  }
  std::ranges::stable_sort(times, std::greater<>(), &KernelTime::total);
  return times;
}

void reset_kernel_times() {
  std::lock_guard lock(mutex);
  table().clear();
}

TimedSink::TimedSink(const Driver& driver, CUstream stream, std::string program)
    : driver_(driver), stream_(stream), program_(std::move(program)) {
  begin();
}

void TimedSink::begin() {
  CUgraph made = nullptr;
  JGE_CALL(driver_, cuGraphCreate, &made, 0);
  graph_ = Graph(driver_, made);
  last_ = nullptr;
  events_.clear();
  labels_.clear();
  mark();
}

void TimedSink::mark() {
  CUevent made = nullptr;
  JGE_CALL(driver_, cuEventCreate, &made, CU_EVENT_DEFAULT);
  events_.emplace_back(driver_, made);
  const auto wait_for = last();
  CUgraphNode node = nullptr;
  JGE_CALL(driver_, cuGraphAddEventRecordNode, &node, graph_.get(), wait_for.data(),
           wait_for.size(), made);
  last_ = node;
}

void TimedSink::added(CUgraphNode node, const std::string& label) {
  last_ = node;
  labels_.push_back(label);
  mark();
}

void TimedSink::add(const Launch& launch, std::span<const std::uint32_t>) {
  added(add_to_graph(driver_, graph_.get(), launch, last()), *launch.label);
}

void TimedSink::add(const Memset& memset, std::span<const std::uint32_t>) {
  added(add_to_graph(driver_, graph_.get(), memset, last()), name_of(memset));
}

void TimedSink::add(const Memcpy& memcpy, std::span<const std::uint32_t>) {
  added(add_to_graph(driver_, graph_.get(), memcpy, last()), name_of(memcpy));
}

void TimedSink::add_empty(std::span<const std::uint32_t>) {}

void TimedSink::add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies) {
  if (!child.updatable()) {
    // It may allocate memory, which no node of a graph can: so it runs by itself, without a time.
    run();
    LaunchSink(driver_, stream_, false).add_child(child, dependencies);
    return begin();
  }
  const auto wait_for = last();
  CUgraphNode node = nullptr;
  JGE_CALL(driver_, cuGraphAddChildGraphNode, &node, graph_.get(), wait_for.data(), wait_for.size(),
           child.get());
  added(node, "captured graph");
}

void TimedSink::finish() { run(); }

void TimedSink::run() {
  if (labels_.empty()) return;
  CUgraphExec made = nullptr;
  JGE_CALL(driver_, cuGraphInstantiateWithFlags, &made, graph_.get(), 0);
  const GraphExec exec(driver_, made);
  JGE_CALL(driver_, cuGraphLaunch, exec.get(), stream_);
  count(stats().instantiations);
  count(stats().graph_launches);
  const CUresult result = driver_.cuStreamSynchronize(stream_);
  if (result != CUDA_SUCCESS) {
    const std::string said = take_fault(driver_);
    throw Error(Code::internal,
                "a kernel of '" + program_ + "' failed: " + describe(driver_, result) +
                    (said.empty() ? "; option debug finds which" : ": " + said),
                result);
  }
  std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    float milliseconds = 0;
    JGE_CALL(driver_, cuEventElapsedTime, &milliseconds, events_[i].get(), events_[i + 1].get());
    take(program_, labels_[i], milliseconds);
  }
}

}  // namespace jge

// plugin/core/sinks/timed_sink.cc: nodes one after the other, each with its time taken.
#include "core/sinks/timed_sink.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/base/waiting.h"
#include "core/sinks/kernel_times.h"
#include "core/sinks/launch_sink.h"

namespace jge {

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

void TimedSink::add(const BoundNode& node, Edges edges) {
  if (const auto* child = std::get_if<Child>(&node); child && !child->graph->updatable()) {
    // It may allocate memory, which no node of a graph can: so it runs by itself, without a time.
    run();
    LaunchSink(driver_, stream_, false).add(node, edges);
    return begin();
  }
  std::visit(
      [this](const auto& kind) {
        const std::string label = kind.timed_as();
        if (label.empty()) return;
        last_ = kind.add_to(driver_, graph_.get(), last());
        labels_.push_back(label);
        mark();
      },
      node);
}

void TimedSink::finish() { run(); }

void TimedSink::run() {
  if (labels_.empty()) return;
  const RelaxedCaptureScope relaxed(driver_);
  CUgraphExec made = nullptr;
  JGE_CALL(driver_, cuGraphInstantiateWithFlags, &made, graph_.get(), 0);
  const GraphExec exec(driver_, made);
  JGE_CALL(driver_, cuGraphLaunch, exec.get(), stream_);
  count(stats().instantiations);
  count(stats().graph_launches);
  const CUresult result = wait_for(driver_, stream_);
  if (result != CUDA_SUCCESS) {
    const std::string said = take_fault(driver_);
    throw Error(Code::internal,
                "a kernel of '" + program_ + "' failed: " + describe(driver_, result) +
                    (said.empty() ? "; option debug finds which" : ": " + said),
                result);
  }
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    float milliseconds = 0;
    JGE_CALL(driver_, cuEventElapsedTime, &milliseconds, events_[i].get(), events_[i + 1].get());
    add_kernel_time(program_, labels_[i], milliseconds);
  }
}

}  // namespace jge

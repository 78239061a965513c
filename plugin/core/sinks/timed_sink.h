// plugin/core/sinks/timed_sink.h: nodes one after the other, each with its time taken.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/handle.h"
#include "core/sinks/sink.h"
#include "driver/driver.h"

namespace jge {

// Runs a batch in its order, as a graph of its own with an event between any two nodes, and waits
// for it. A graph, because the host hands kernels to a stream more slowly than small ones run, and
// the gaps would be taken for theirs.
class TimedSink final : public Sink {
 public:
  // `program` is what the times are kept under.
  TimedSink(const Driver& driver, CUstream stream, std::string program);
  void add(const BoundNode& node, Edges edges) override;
  void finish() override;

 private:
  std::span<const CUgraphNode> last() const { return {&last_, last_ ? 1u : 0u}; }
  void mark();
  void begin();
  void run();

  const Driver& driver_;
  CUstream stream_;
  std::string program_;
  std::vector<Event> events_;  // one before each node and one behind the last
  Graph graph_;                // goes before the events that it records
  CUgraphNode last_ = nullptr;
  std::vector<std::string> labels_;  // of the nodes
};

}  // namespace jge

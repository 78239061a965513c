// plugin/core/sinks/capture_sink.h: nodes into the graph that a stream is being captured into.
#pragma once

#include <vector>

#include "core/sinks/sink.h"
#include "driver/driver.h"

namespace jge {

// The capture is another's, such as XLA's. Allocates nothing on the device, launches nothing and
// waits for nothing; equal batches give equal nodes and edges.
class CaptureSink final : public Sink {
 public:
  // The stream must be capturing. Throws Error if the capture has been invalidated.
  CaptureSink(const Driver& driver, CUstream stream);
  void add(const BoundNode& node, Edges edges) override;
  // The stream's next operation then waits for all nodes that no other waits for.
  void finish() override;

 private:
  const Driver& driver_;
  CUstream stream_;
  CUgraph graph_ = nullptr;
  std::vector<CUgraphNode> before_;  // what the stream's next operation would have waited for
  std::vector<CUgraphNode> nodes_;
  std::vector<bool> has_dependents_;
  std::vector<CUgraphNode> wait_for_;
};

// Whether the stream is being captured; throws Error if its capture has been invalidated.
bool is_capturing(const Driver& driver, CUstream stream);

}  // namespace jge

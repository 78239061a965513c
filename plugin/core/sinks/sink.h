// plugin/core/sinks/sink.h: where a batch of nodes goes.
#pragma once

#include "core/nodes/edges.h"
#include "core/nodes/nodes.h"

namespace jge {

// Takes the nodes of one batch, numbered from 0, each after those it waits for. A sink that throws
// may have handed over part of the batch: its stream's work, or the capture, is then incomplete.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void add(const BoundNode& node, Edges edges) = 0;
  // After the last node.
  virtual void finish() = 0;
};

}  // namespace jge

// plugin/core/nodes/child_graph.h: a captured graph that becomes one node of another.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/handle.h"

namespace jge {

// Stream work of library code, captured.
class ChildGraph {
 public:
  // Takes the graph over and reads what its executable form depends on. Throws Error.
  ChildGraph(const Driver& driver, CUgraph graph);

  CUgraph get() const { return graph_.get(); }

  // Kinds, attributes and edges of its nodes, nested graphs included; equal for graphs of which one
  // can be patched into the other.
  const std::vector<std::uint64_t>& words() const { return words_; }

  // Whether it can be a node of an executable graph that is then given another graph of the same
  // words in its place. The driver may refuse that nevertheless.
  bool updatable() const { return updatable_; }

 private:
  void read(const Driver& driver, CUgraph graph);

  Graph graph_;
  std::vector<std::uint64_t> words_;
  bool updatable_ = true;
};

}  // namespace jge

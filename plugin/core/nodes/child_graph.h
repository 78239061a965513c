// plugin/core/nodes/child_graph.h: a node that is a captured graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/handle.h"
#include "core/nodes/drawing.h"
#include "core/nodes/topology.h"

namespace jge {

// Owns the graph that stream work of library code was captured into.
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

// A captured graph as one node of another.
struct Child {
  static constexpr std::uint8_t kNumber = 4;
  static constexpr bool kOneOperation = false;
  struct Told {};

  // As a graph of its own, which is dropped at once.
  void enqueue(const Driver& driver, CUstream stream) const;
  CUgraphNode add_to(const Driver& driver, CUgraph parent,
                     std::span<const CUgraphNode> wait_for) const;
  void add_to(Topology& topology, Edges edges) const;
  // Graphs are not compared: each is another.
  Told told(std::vector<std::byte>&) const { return {}; }
  bool tell(Told&, std::vector<std::byte>&) const { return true; }
  void update(const Driver& driver, CUgraphExec exec, CUgraphNode node) const;
  std::string name() const { return "captured graph"; }
  std::string timed_as() const { return name(); }
  Drawing draw() const { return {name(), "box3d"}; }

  const ChildGraph* graph = nullptr;
};

}  // namespace jge

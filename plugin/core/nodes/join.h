// plugin/core/nodes/join.h: a node that does nothing but wait for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/nodes/drawing.h"
#include "core/nodes/operands.h"
#include "core/nodes/reader.h"
#include "core/nodes/topology.h"
#include "driver/driver.h"

namespace jge {

// As a program holds it. Its bytes have none: it comes in where many nodes wait for the same many.
struct JoinNode {
  static constexpr std::uint8_t kNumber = 5;

  static JoinNode read(NodeReader&) { refuse("a node is of an unknown kind"); }
  struct Join bind(const Loaded&, std::span<const Binding>, std::span<void* const>) const;
  std::vector<std::string> pointer_names(std::span<const Kernel>) const { return {}; }
  template <class Show>
  void describe(Show&& show, std::span<const Kernel>, std::span<const Binding>) const {
    show("join", true);
  }
};

// Later nodes that must wait for many wait for this one. On a stream its place is enough.
struct Join {
  static constexpr std::uint8_t kNumber = JoinNode::kNumber;
  static constexpr bool kOneOperation = false;
  struct Told {};

  void enqueue(const Driver&, CUstream) const {}
  CUgraphNode add_to(const Driver& driver, CUgraph graph,
                     std::span<const CUgraphNode> wait_for) const;
  void add_to(Topology& topology, Edges edges) const { topology.add(kNumber, edges); }
  Told told(std::vector<std::byte>&) const { return {}; }
  bool tell(Told&, std::vector<std::byte>&) const { return false; }
  void update(const Driver&, CUgraphExec, CUgraphNode) const {}
  std::string name() const { return "join"; }
  std::string timed_as() const { return ""; }
  Drawing draw() const { return {name(), "point"}; }
};

inline Join JoinNode::bind(const Loaded&, std::span<const Binding>, std::span<void* const>) const {
  return {};
}

}  // namespace jge

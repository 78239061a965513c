// plugin/core/nodes/join.h: a node that does nothing but wait for others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/nodes/drawing.h"
#include "core/nodes/topology.h"
#include "driver/driver.h"

namespace jge {

// Later nodes that must wait for many wait for this one. On a stream its place is enough.
struct Join {
  static constexpr std::uint8_t kNumber = 5;
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

}  // namespace jge

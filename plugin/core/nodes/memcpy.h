// plugin/core/nodes/memcpy.h: a node that copies memory of a device within it.
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

struct Memcpy;

// As a program holds it, with two bindings: source and target.
struct MemcpyNode {
  static constexpr std::uint8_t kNumber = 3;

  static MemcpyNode read(NodeReader& reader);
  Memcpy bind(const Loaded& loaded, std::span<const Binding> bindings,
              std::span<void* const> buffers) const;
  std::vector<std::string> pointer_names(std::span<const Kernel>) const { return {"from", "to"}; }
  template <class Show>
  void describe(Show&& show, std::span<const Kernel>, std::span<const Binding> bindings) const {
    show("memcpy", bindings[0].bytes);
  }
};

// With its addresses, and its context as a Memset.
struct Memcpy {
  static constexpr std::uint8_t kNumber = MemcpyNode::kNumber;
  static constexpr bool kOneOperation = true;
  using Told = Memcpy;

  void enqueue(const Driver& driver, CUstream stream) const;
  CUgraphNode add_to(const Driver& driver, CUgraph graph,
                     std::span<const CUgraphNode> wait_for) const;
  void add_to(Topology& topology, Edges edges) const;
  Told told(std::vector<std::byte>&) const { return *this; }
  bool tell(Told& told, std::vector<std::byte>&) const;
  void update(const Driver& driver, CUgraphExec exec, CUgraphNode node) const;
  std::string name() const { return "copy"; }
  std::string timed_as() const { return name(); }
  Drawing draw() const;
  friend bool operator==(const Memcpy&, const Memcpy&) = default;

  CUcontext context = nullptr;
  CUdeviceptr from = 0, to = 0;
  std::uint64_t bytes = 0;
};

}  // namespace jge

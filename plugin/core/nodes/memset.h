// plugin/core/nodes/memset.h: a node that fills memory with a value.
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

struct Memset;

// As a program holds it, with one binding: what is written.
struct MemsetNode {
  static constexpr std::uint8_t kNumber = 2;

  static MemsetNode read(NodeReader& reader);
  Memset bind(const Loaded& loaded, std::span<const Binding> bindings,
              std::span<void* const> buffers) const;
  std::vector<std::string> pointer_names(std::span<const Kernel>) const { return {"to"}; }
  template <class Show>
  void describe(Show&& show, std::span<const Kernel>, std::span<const Binding> bindings) const {
    show("memset", value);
    show("element_bytes", element_bytes);
    show("bytes", bindings[0].bytes);
  }

  std::uint32_t element_bytes = 1;
  std::uint32_t value = 0;  // of each element
};

// With its address. It names its context, as a graph's nodes must; of a kernel, the function knows
// it.
struct Memset {
  static constexpr std::uint8_t kNumber = MemsetNode::kNumber;
  static constexpr bool kOneOperation = true;
  using Told = Memset;

  void enqueue(const Driver& driver, CUstream stream) const;
  CUgraphNode add_to(const Driver& driver, CUgraph graph,
                     std::span<const CUgraphNode> wait_for) const;
  void add_to(Topology& topology, Edges edges) const;
  Told told(std::vector<std::byte>&) const { return *this; }
  bool tell(Told& told, std::vector<std::byte>&) const;
  void update(const Driver& driver, CUgraphExec exec, CUgraphNode node) const;
  std::string name() const { return "memset"; }
  std::string timed_as() const { return name(); }
  Drawing draw() const;
  friend bool operator==(const Memset&, const Memset&) = default;

  CUcontext context = nullptr;
  CUdeviceptr to = 0;
  std::uint32_t element_bytes = 1;
  std::uint32_t value = 0;  // of each element
  std::uint64_t bytes = 0;
};

}  // namespace jge

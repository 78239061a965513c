// plugin/core/nodes/kind.h: what a kind of node has to say for itself.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/nodes/drawing.h"
#include "core/nodes/edges.h"
#include "core/nodes/operands.h"
#include "core/nodes/reader.h"
#include "core/nodes/topology.h"
#include "driver/driver.h"

namespace jge {

// A node with its addresses, as the driver takes it. What calls the driver throws Error.
template <class Kind>
concept NodeKind = requires(const Kind& node, const Driver& driver, CUstream stream, CUgraph graph,
                            std::span<const CUgraphNode> wait_for, CUgraphExec exec,
                            CUgraphNode there, Topology& topology, Edges edges,
                            typename Kind::Told& told, std::vector<std::byte>& values) {
  // Tells the kinds apart, in topologies and, of what a program holds, in its format.
  { Kind::kNumber } -> std::convertible_to<std::uint8_t>;
  // Whether it goes onto a stream as one operation of its own.
  { Kind::kOneOperation } -> std::convertible_to<bool>;

  // Hands it to a stream.
  { node.enqueue(driver, stream) } -> std::same_as<void>;
  // Adds it to a graph, with its attributes, behind the nodes it waits for.
  { node.add_to(driver, graph, wait_for) } -> std::same_as<CUgraphNode>;
  // Adds to a topology what of it no executable graph changes.
  { node.add_to(topology, edges) } -> std::same_as<void>;

  // What an executable graph's node has been told, kept to be compared; values go to the end of
  // `values`.
  { node.told(values) } -> std::same_as<typename Kind::Told>;
  // Notes that the node is told this; false if it was told just this last.
  { node.tell(told, values) } -> std::same_as<bool>;
  // Makes a node of an executable graph this one. It must be of the same kind and topology.
  { node.update(driver, exec, there) } -> std::same_as<void>;

  // What errors call it: "kernel 'blur'", "memset", "copy".
  { node.name() } -> std::same_as<std::string>;
  // What its times are kept under; empty if it takes none.
  { node.timed_as() } -> std::same_as<std::string>;
  // In a drawing of its graph.
  { node.draw() } -> std::same_as<Drawing>;
};

struct ShowAnything {
  template <class Value>
  void operator()(const char*, const Value&) const {}
};

// A node as a program holds it, apart from its bindings: what of it needs no device. The bindings
// say which memory it reads and writes, from which its edges come.
template <class Kind>
concept ProgramNodeKind = requires(
    const Kind& node, NodeReader& reader, const Loaded& loaded, std::span<const Kernel> kernels,
    std::span<const Binding> bindings, std::span<void* const> buffers) {
  { Kind::kNumber } -> std::convertible_to<std::uint8_t>;
  // Reads it, behind its number, and adds its bindings.
  { Kind::read(reader) } -> std::same_as<Kind>;
  // The node at these addresses; valid until this thread's next bind.
  { node.bind(loaded, bindings, buffers) };
  // Names of its pointers, as the user's source has them.
  { node.pointer_names(kernels) } -> std::same_as<std::vector<std::string>>;
  // Calls show(name, value) for each attribute.
  { node.describe(ShowAnything(), kernels, bindings) };
};

}  // namespace jge

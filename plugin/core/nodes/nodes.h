// plugin/core/nodes/nodes.h: the list of all kinds of nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/nodes/child_graph.h"
#include "core/nodes/join.h"
#include "core/nodes/kernel.h"
#include "core/nodes/kind.h"
#include "core/nodes/memcpy.h"
#include "core/nodes/memset.h"

namespace jge {

// A node with its addresses, as sinks and executable graphs take it.
using BoundNode = std::variant<Launch, Memset, Memcpy, Child, Join>;

// A node of a program: the kinds that its format has, and joins.
using Node = std::variant<KernelNode, MemsetNode, MemcpyNode, JoinNode>;

// Reads one from a program's bytes. Throws Error (invalid_argument).
Node read_node(NodeReader& reader);

// What an executable graph's node was told last.
template <class... Kinds>
std::variant<typename Kinds::Told...> told_of(const std::variant<Kinds...>&);
using Told = decltype(told_of(std::declval<const BoundNode&>()));

}  // namespace jge

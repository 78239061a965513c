// plugin/core/nodes/edges.h: what orders the nodes of one graph.
#pragma once

#include <cstdint>
#include <span>

namespace jge {

// The earlier nodes of a graph that a node waits for, by number, ascending.
using Edges = std::span<const std::uint32_t>;

}  // namespace jge

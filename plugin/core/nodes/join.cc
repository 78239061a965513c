// plugin/core/nodes/join.cc: a node that does nothing but wait for others.
#include "core/nodes/join.h"

#include "core/base/error.h"

namespace jge {

CUgraphNode Join::add_to(const Driver& driver, CUgraph graph,
                         std::span<const CUgraphNode> wait_for) const {
  CUgraphNode added = nullptr;
  JGE_CALL(driver, cuGraphAddEmptyNode, &added, graph, wait_for.data(), wait_for.size());
  return added;
}

}  // namespace jge

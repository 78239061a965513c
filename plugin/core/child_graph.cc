// plugin/core/child_graph.cc: a captured graph that becomes one node of another.
#include "core/child_graph.h"

#include <algorithm>
#include <unordered_map>

#include "core/error.h"

namespace jge {
namespace {

bool can_be_patched(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return true;
    default:
      // Allocations, conditionals, events and host functions keep what they were instantiated with.
      return false;
  }
}

}  // namespace

ChildGraph::ChildGraph(const Driver& driver, CUgraph graph) : graph_(driver, graph) {
  read(driver, graph);
}

void ChildGraph::read(const Driver& driver, CUgraph graph) {
  std::size_t count = 0;
  JGE_CALL(driver, cuGraphGetNodes, graph, nullptr, &count);
  std::vector<CUgraphNode> nodes(count);
  if (count > 0) JGE_CALL(driver, cuGraphGetNodes, graph, nodes.data(), &count);
  std::unordered_map<CUgraphNode, std::uint64_t> number;
  for (std::size_t i = 0; i < count; ++i) number[nodes[i]] = i;

  words_.push_back(count);
  std::vector<CUgraphNode> before;
  std::vector<std::uint64_t> edges;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    JGE_CALL(driver, cuGraphNodeGetType, node, &type);
    updatable_ = updatable_ && can_be_patched(type);
    std::size_t dependencies = 0;
    JGE_CALL(driver, cuGraphNodeGetDependencies, node, nullptr, nullptr, &dependencies);
    before.resize(dependencies);
    if (dependencies > 0) {
      JGE_CALL(driver, cuGraphNodeGetDependencies, node, before.data(), nullptr, &dependencies);
    }
    words_.push_back(std::uint64_t(type) | std::uint64_t{dependencies} << 32);
    edges.clear();
    for (CUgraphNode on : before) edges.push_back(number.at(on));
    std::ranges::sort(edges);
    words_.insert(words_.end(), edges.begin(), edges.end());
    if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      CUlaunchAttributeValue cluster{}, cooperative{};
      JGE_CALL(driver, cuGraphKernelNodeGetAttribute, node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
               &cluster);
      JGE_CALL(driver, cuGraphKernelNodeGetAttribute, node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
               &cooperative);
      words_.push_back(std::uint64_t{cluster.clusterDim.x} << 32 | cluster.clusterDim.y);
      words_.push_back(std::uint64_t{cluster.clusterDim.z} << 32 |
                       std::uint64_t(cooperative.cooperative != 0));
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph inner = nullptr;
      JGE_CALL(driver, cuGraphChildGraphNodeGetGraph, node, &inner);
      read(driver, inner);
    }
  }
}

}  // namespace jge

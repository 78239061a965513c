// plugin/core/nodes/child_graph.cc: a node that is a captured graph.
#include "core/nodes/child_graph.h"

#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/stats.h"

namespace jge {
namespace {

// What an executable graph's child node can be given in place of another node of its kind: by the
// limitations of cuGraphExecUpdate, which hold for cuGraphExecChildGraphNodeSetParams too, and by
// "Graph Update Limitations" of the CUDA Programming Guide. Some changes within a kind are refused
// all the same, such as those of a 2-D memset or of a copy's memory type; then the driver says so.
bool can_be_patched(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_HOST:  // no restrictions, as for the events that NCCL waits for
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return true;
    default:
      // Allocations, frees and conditionals, which cuGraphAddChildGraphNode refuses altogether;
      // semaphores and batched memory operations, whose number is not in the words; what is new.
      return false;
  }
}

// Asked for with their data, because a programmatic edge is told in no other way.
std::vector<std::uint64_t> edges_of(const Driver& driver, CUgraphNode node,
                                    const std::unordered_map<CUgraphNode, std::uint64_t>& number) {
  std::vector<CUgraphNode> before(8);
  std::vector<CUgraphEdgeData> edge_data(before.size());
  std::size_t count = 0;
  for (;;) {
    count = before.size();
    JGE_CALL(driver, cuGraphNodeGetDependencies, node, before.data(), edge_data.data(), &count);
    if (count < before.size()) break;  // else there may be more
    before.resize(2 * before.size());
    edge_data.resize(before.size());
  }
  std::vector<std::uint64_t> edges;
  for (std::size_t i = 0; i < count; ++i) {
    const CUgraphEdgeData& data = edge_data[i];
    edges.push_back(number.at(before[i]) << 32 | std::uint64_t{data.from_port} << 16 |
                    std::uint64_t{data.to_port} << 8 | data.type);
  }
  std::ranges::sort(edges);
  return edges;
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
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    JGE_CALL(driver, cuGraphNodeGetType, node, &type);
    updatable_ = updatable_ && can_be_patched(type);
    const std::vector<std::uint64_t> edges = edges_of(driver, node, number);
    words_.push_back(std::uint64_t(type) | std::uint64_t{edges.size()} << 32);
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

void Child::enqueue(const Driver& driver, CUstream stream) const {
  const RelaxedCaptureScope relaxed(driver);
  CUgraphExec made = nullptr;
  JGE_CALL(driver, cuGraphInstantiateWithFlags, &made, graph->get(), 0);
  // Destroyed at once: the driver keeps an executable graph until it has run.
  const GraphExec exec(driver, made);
  JGE_CALL(driver, cuGraphLaunch, exec.get(), stream);
  count(stats().instantiations);
  count(stats().graph_launches);
}

CUgraphNode Child::add_to(const Driver& driver, CUgraph parent,
                          std::span<const CUgraphNode> wait_for) const {
  CUgraphNode added = nullptr;
  JGE_CALL(driver, cuGraphAddChildGraphNode, &added, parent, wait_for.data(), wait_for.size(),
           graph->get());
  return added;
}

void Child::add_to(Topology& topology, Edges edges) const {
  topology.add(kNumber, edges, graph->words());
  if (!graph->updatable()) topology.forbid_updates();
}

void Child::update(const Driver& driver, CUgraphExec exec, CUgraphNode node) const {
  JGE_CALL(driver, cuGraphExecChildGraphNodeSetParams, exec, node, graph->get());
}

}  // namespace jge

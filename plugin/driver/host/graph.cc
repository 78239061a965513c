// plugin/driver/host/graph.cc: building graphs: nodes, edges, copies.
#include <algorithm>
#include <utility>

#include "driver/host/state.h"

namespace jge::host {
namespace {

CUresult add(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies,
             std::size_t count, Operation operation) {
  require(handle);
  *handle = reinterpret_cast<CUgraphNode>(
      &add_node(get<Graph>(graph_handle), std::move(operation), dependencies, count));
  return CUDA_SUCCESS;
}

// Graphs that allocate or free memory can neither be cloned nor be a child node.
const Graph& clonable(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    require(!std::holds_alternative<AllocOp>(node->operation) &&
                !std::holds_alternative<FreeOp>(node->operation),
            CUDA_ERROR_NOT_SUPPORTED);
  }
  return graph;
}

}  // namespace

Graph::~Graph() = default;

void require_plain(const CUgraphEdgeData* edges, std::size_t count) {
  for (std::size_t i = 0; edges && i < count; ++i) {
    require(edges[i].from_port == 0 && edges[i].to_port == 0 && edges[i].type == 0,
            CUDA_ERROR_NOT_SUPPORTED);
  }
}

Node& add_node(Graph& graph, Operation operation, const CUgraphNode* dependencies,
               std::size_t count) {
  require(dependencies || count == 0);
  auto node = std::make_unique<Node>();
  for (std::size_t i = 0; i < count; ++i) {
    Node& from = get<Node>(dependencies[i]);
    require(from.graph == &graph);
    node->dependencies.push_back(&from);
  }
  std::vector<Node*> sorted = node->dependencies;
  std::sort(sorted.begin(), sorted.end());
  require(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
  node->graph = &graph;
  node->index = graph.nodes.size();
  node->operation = std::move(operation);
  graph.nodes.push_back(std::move(node));
  return *graph.nodes.back();
}

std::shared_ptr<Graph> copy(const Graph& graph) {
  auto result = std::make_shared<Graph>();
  for (const auto& node : graph.nodes) {
    auto* child = std::get_if<ChildOp>(&node->operation);
    add_node(*result, child ? ChildOp{copy(*child->graph)} : node->operation, nullptr, 0);
  }
  for (const auto& node : graph.nodes) {
    for (const Node* from : node->dependencies) {
      result->nodes[node->index]->dependencies.push_back(result->nodes[from->index].get());
    }
  }
  result->order = graph.order;
  return result;
}

CUgraph publish(std::shared_ptr<Graph> graph) {
  ++state().live.graphs;
  Graph* pointer = graph.get();
  pointer->self = std::move(graph);
  return reinterpret_cast<CUgraph>(pointer);
}

namespace api {

CUresult cuGraphCreate(CUgraph* handle, unsigned flags) {
  require(handle && flags == 0);
  *handle = publish(std::make_shared<Graph>());
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  Graph& graph = get<Graph>(handle);
  require(graph.self != nullptr);  // of a child node or a capture
  --state().live.graphs;
  const std::shared_ptr<Graph> last = std::move(graph.self);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* clone, CUgraph original) {
  require(clone);
  *clone = publish(copy(clonable(get<Graph>(original))));
  return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              std::size_t count, const CUDA_KERNEL_NODE_PARAMS* params) {
  require(params);
  return add(node, graph, dependencies, count, kernel_op(*params));
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              std::size_t count, const CUDA_MEMSET_NODE_PARAMS* params,
                              CUcontext context) {
  require(params);
  get<Context>(context);
  return add(node, graph, dependencies, count, memset_op(*params));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                              std::size_t count, const CUDA_MEMCPY3D* params, CUcontext context) {
  require(params);
  get<Context>(context);
  return add(node, graph, dependencies, count, memcpy_op(*params));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                  std::size_t count, CUgraph child) {
  return add(node, graph, dependencies, count, ChildOp{copy(clonable(get<Graph>(child)))});
}

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                             std::size_t count) {
  return add(node, graph, dependencies, count, EmptyOp{});
}

// The event is reached anew with every launch of the graph.
CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph,
                                   const CUgraphNode* dependencies, std::size_t count,
                                   CUevent handle) {
  Event& event = get<Event>(handle);
  auto record = std::make_shared<Record>();
  const CUresult result = add(node, graph, dependencies, count, EventOp{record});
  event.record = std::move(record);
  event.capture.reset();
  event.nodes.clear();
  return result;
}

// Adds all of the edges or none.
CUresult cuGraphAddDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                const CUgraphEdgeData* edges, std::size_t count) {
  const Graph& graph = get<Graph>(handle);
  require((from && to) || count == 0);
  require_plain(edges, count);
  std::size_t added = 0;
  try {
    for (; added < count; ++added) {
      Node& source = get<Node>(from[added]);
      Node& sink = get<Node>(to[added]);
      require(&source != &sink && source.graph == &graph && sink.graph == &graph);
      auto& known = sink.dependencies;
      require(std::find(known.begin(), known.end(), &source) == known.end());
      known.push_back(&source);
    }
  } catch (const Failure&) {
    while (added > 0) get<Node>(to[--added]).dependencies.pop_back();
    throw;
  }
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace jge::host

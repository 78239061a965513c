// plugin/driver/host_graph.cc: graphs of the software driver: how they are built and asked.
#include <cstdio>
#include <utility>

#include "driver/host_state.h"

namespace jge::host {
namespace {

CUgraphNode handle_of(const Node* node) {
  return reinterpret_cast<CUgraphNode>(const_cast<Node*>(node));
}

KernelOp& kernel_of(CUgraphNode handle) {
  auto* op = std::get_if<KernelOp>(&get<Node>(handle).operation);
  require(op);
  return *op;
}

// CUDA's protocol for lists: a null array asks for the count; a longer one is padded with nulls.
template <class T, class Item>
void fill_list(T* out, std::size_t room, std::size_t count, Item item) {
  for (std::size_t i = 0; out && i < room; ++i) out[i] = i < count ? item(i) : T{};
}

CUresult add(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies,
             std::size_t count, Operation operation) {
  require(handle);
  *handle =
      handle_of(&add_node(get<Graph>(graph_handle), std::move(operation), dependencies, count));
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

void print(std::FILE* file, const Graph& graph, const std::string& prefix) {
  constexpr const char* kinds[] = {"kernel", "memset", "memcpy", "graph", "empty",
                                   "host",   "alloc",  "free",   "event"};
  for (const auto& node : graph.nodes) {
    const std::string name = prefix + std::to_string(node->index);
    const auto* kernel = std::get_if<KernelOp>(&node->operation);
    std::fprintf(file, "  \"%s\" [label=\"%s %s\"];\n", name.c_str(),
                 kinds[node->operation.index()], kernel ? kernel->function->kernel->name : "");
    for (const Node* from : node->dependencies) {
      std::fprintf(file, "  \"%s%zu\" -> \"%s\";\n", prefix.c_str(), from->index, name.c_str());
    }
    if (const auto* child = std::get_if<ChildOp>(&node->operation)) {
      print(file, *child->graph, name + ".");
    }
  }
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

// Clusters and cooperative launches need a scheduler that the host has not.
void set_attribute(KernelOp& op, CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
      break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      op.priority = value.priority;
      break;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      require(value.cooperative == 0, CUDA_ERROR_NOT_SUPPORTED);
      break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      const auto& cluster = value.clusterDim;
      require(cluster.x <= 1 && cluster.y <= 1 && cluster.z <= 1, CUDA_ERROR_NOT_SUPPORTED);
      op.cluster = {cluster.x, cluster.y, cluster.z};
      break;
    }
    default:
      throw Failure{CUDA_ERROR_NOT_SUPPORTED};
  }
}

KernelOp kernel_op(const CUDA_KERNEL_NODE_PARAMS& params) {
  return kernel_op(get<Function>(params.func), {params.gridDimX, params.gridDimY, params.gridDimZ},
                   {params.blockDimX, params.blockDimY, params.blockDimZ}, params.sharedMemBytes,
                   params.kernelParams, params.extra);
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

CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* params) {
  require(params);
  const KernelOp& op = kernel_of(handle);
  *params = {};
  params->func = reinterpret_cast<CUfunction>(op.function);
  params->gridDimX = op.grid[0];
  params->gridDimY = op.grid[1];
  params->gridDimZ = op.grid[2];
  params->blockDimX = op.block[0];
  params->blockDimY = op.block[1];
  params->blockDimZ = op.block[2];
  params->sharedMemBytes = op.shared_bytes;
  params->ctx = reinterpret_cast<CUcontext>(op.module->context);
  if (op.arguments) params->kernelParams = const_cast<void**>(op.arguments->pointers.data());
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUlaunchAttributeID id,
                                       CUlaunchAttributeValue* value) {
  require(value);
  const KernelOp& op = kernel_of(handle);
  *value = {};
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      value->priority = op.priority;
      break;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      value->cooperative = 0;
      break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      value->clusterDim.x = op.cluster[0];
      value->clusterDim.y = op.cluster[1];
      value->clusterDim.z = op.cluster[2];
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUlaunchAttributeID id,
                                       const CUlaunchAttributeValue* value) {
  require(value);
  set_attribute(kernel_of(handle), id, *value);
  return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* graph) {
  require(graph);
  const auto* child = std::get_if<ChildOp>(&get<Node>(handle).operation);
  require(child);
  *graph = reinterpret_cast<CUgraph>(child->graph.get());
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  require(type);
  constexpr CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_KERNEL,    CU_GRAPH_NODE_TYPE_MEMSET,
                                       CU_GRAPH_NODE_TYPE_MEMCPY,    CU_GRAPH_NODE_TYPE_GRAPH,
                                       CU_GRAPH_NODE_TYPE_EMPTY,     CU_GRAPH_NODE_TYPE_HOST,
                                       CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE};
  *type = types[get<Node>(handle).operation.index()];
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* dependencies,
                                    CUgraphEdgeData* edges, std::size_t* count) {
  require(count);
  const auto& from = get<Node>(handle).dependencies;
  fill_list(dependencies, *count, from.size(), [&](auto i) { return handle_of(from[i]); });
  fill_list(edges, *count, 0, [](auto) { return CUgraphEdgeData{}; });
  *count = dependencies ? std::min(*count, from.size()) : from.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  require(count);
  const auto& all = get<Graph>(handle).nodes;
  fill_list(nodes, *count, all.size(), [&](auto i) { return handle_of(all[i].get()); });
  *count = nodes ? std::min(*count, all.size()) : all.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edges,
                         std::size_t* count) {
  require(count && !from == !to);
  std::vector<std::pair<const Node*, const Node*>> all;
  for (const auto& node : get<Graph>(handle).nodes) {
    for (const Node* source : node->dependencies) all.emplace_back(source, node.get());
  }
  fill_list(from, *count, all.size(), [&](auto i) { return handle_of(all[i].first); });
  fill_list(to, *count, all.size(), [&](auto i) { return handle_of(all[i].second); });
  fill_list(edges, *count, 0, [](auto) { return CUgraphEdgeData{}; });
  *count = from ? std::min(*count, all.size()) : all.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned) {
  require(path);
  const Graph& graph = get<Graph>(handle);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "w"), &std::fclose);
  require(file != nullptr, CUDA_ERROR_OPERATING_SYSTEM);
  std::fputs("digraph graph_ {\n", file.get());
  print(file.get(), graph, "");
  std::fputs("}\n", file.get());
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace jge::host

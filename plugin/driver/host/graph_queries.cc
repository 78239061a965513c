// plugin/driver/host/graph_queries.cc: what graphs and nodes answer about themselves.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "driver/host/state.h"

namespace jge::host::api {
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

}  // namespace jge::host::api

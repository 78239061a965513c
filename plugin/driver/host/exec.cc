// plugin/driver/host/exec.cc: executable graphs: instantiate, launch, update.
#include <functional>
#include <queue>
#include <utility>

#include "driver/host/state.h"

namespace jge::host {

Exec::~Exec() = default;

namespace {

// Fills graph.order: the nodes as they were added, but for edges that say otherwise. False where
// there is a circle.
bool sort(Graph& graph) {
  std::vector<std::size_t> missing(graph.nodes.size());
  std::vector<std::vector<std::size_t>> next(graph.nodes.size());
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (const auto& node : graph.nodes) {
    const auto* child = std::get_if<ChildOp>(&node->operation);
    if (child && !sort(*child->graph)) return false;
    missing[node->index] = node->dependencies.size();
    if (node->dependencies.empty()) ready.push(node->index);
    for (const Node* from : node->dependencies) next[from->index].push_back(node->index);
  }
  graph.order.clear();
  while (!ready.empty()) {
    const std::size_t node = ready.top();
    ready.pop();
    graph.order.push_back(node);
    for (const std::size_t other : next[node]) {
      if (--missing[other] == 0) ready.push(other);
    }
  }
  return graph.order.size() == graph.nodes.size();
}

std::shared_ptr<Graph> plan_of(const Graph& graph) {
  std::shared_ptr<Graph> plan = copy(graph);
  require(sort(*plan));
  return plan;
}

// What keeps an operation from taking another's place in an executable graph; by CUDA's rules.
CUgraphExecUpdateResult compare(const Graph& old_graph, const Graph& new_graph,
                                CUgraphExecUpdateResultInfo& info);

CUgraphExecUpdateResult compare(const KernelOp& old_op, const KernelOp& new_op) {
  if (old_op.module->context != new_op.module->context) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
  }
  if (old_op.cluster != new_op.cluster) return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUgraphExecUpdateResult compare(const MemsetOp& old_op, const MemsetOp& new_op) {
  const auto& from = old_op.params;
  const auto& to = new_op.params;
  const bool flat = from.height == 1 && to.height == 1;
  const bool same = from.height == to.height && from.width == to.width &&
                    from.elementSize == to.elementSize && from.pitch == to.pitch;
  return flat || same ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                      : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

CUgraphExecUpdateResult compare(const MemcpyOp& old_op, const MemcpyOp& new_op) {
  return old_op.from_type == new_op.from_type && old_op.to_type == new_op.to_type
             ? CU_GRAPH_EXEC_UPDATE_SUCCESS
             : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

CUgraphExecUpdateResult compare(const EmptyOp&, const EmptyOp&) {
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUgraphExecUpdateResult compare(const HostOp&, const HostOp&) {
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUgraphExecUpdateResult compare(const EventOp&, const EventOp&) {
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// Allocations and frees: the address belongs to the graph that was instantiated.
template <class T>
CUgraphExecUpdateResult compare(const T& old_op, const T& new_op) {
  return old_op.memory == new_op.memory ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                        : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

CUgraphExecUpdateResult compare(const Operation& old_op, const Operation& new_op,
                                CUgraphExecUpdateResultInfo& info) {
  if (old_op.index() != new_op.index()) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  return std::visit(
      [&]<class T>(const T& old_one) {
        const T& new_one = std::get<T>(new_op);
        if constexpr (std::is_same_v<T, ChildOp>) {
          return compare(*old_one.graph, *new_one.graph, info);
        } else {
          return compare(old_one, new_one);
        }
      },
      old_op);
}

CUgraphExecUpdateResult compare(const Graph& old_graph, const Graph& new_graph,
                                CUgraphExecUpdateResultInfo& info) {
  const std::size_t count = old_graph.nodes.size();
  if (count != new_graph.nodes.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (std::size_t i = 0; i < count; ++i) {
    Node& to = *new_graph.nodes[i];
    const auto& old_edges = old_graph.nodes[i]->dependencies;
    const bool same = std::equal(old_edges.begin(), old_edges.end(), to.dependencies.begin(),
                                 to.dependencies.end(),
                                 [](const Node* a, const Node* b) { return a->index == b->index; });
    const CUgraphExecUpdateResult result =
        same ? compare(old_graph.nodes[i]->operation, to.operation, info)
             : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS) continue;
    if (!info.errorNode) info.errorNode = reinterpret_cast<CUgraphNode>(&to);
    return result;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

// Puts an operation in the place of the one that the template's node has in the exec. Only the
// exec's lookup table sees the handle, so that one of a destroyed graph is refused, not followed.
CUresult replace(CUgraphExec exec_handle, CUgraphNode handle, Operation operation) {
  Exec& exec = get<Exec>(exec_handle);
  require(!exec.source.expired());
  const auto place = exec.index.find(handle);
  require(place != exec.index.end());
  const Operation& old_op = exec.plan->nodes[place->second]->operation;
  require(old_op.index() == operation.index());
  if (auto* kernel = std::get_if<KernelOp>(&operation)) {  // parameters carry no attributes
    kernel->cluster = std::get<KernelOp>(old_op).cluster;
    kernel->priority = std::get<KernelOp>(old_op).priority;
  }
  CUgraphExecUpdateResultInfo info{};
  require(compare(old_op, operation, info) == CU_GRAPH_EXEC_UPDATE_SUCCESS,
          std::holds_alternative<ChildOp>(operation) ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
                                                     : CUDA_ERROR_INVALID_VALUE);
  if (exec.plan.use_count() > 1) exec.plan = copy(*exec.plan);
  exec.plan->nodes[place->second]->operation = std::move(operation);
  return CUDA_SUCCESS;
}

}  // namespace

namespace api {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph_handle,
                                     unsigned long long flags) {
  current_context();
  require_no_capture();
  Graph& graph = get<Graph>(graph_handle);
  constexpr unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                       CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  require(handle && (flags & ~known) == 0);
  require(graph.self != nullptr);  // of a child node or a capture
  auto exec = std::make_unique<Exec>();
  exec->plan = plan_of(graph);
  exec->source = graph.self;
  for (const auto& node : graph.nodes) exec->index.emplace(node.get(), node->index);
  ++state().live.execs;
  *handle = reinterpret_cast<CUgraphExec>(exec.release());
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream_handle) {
  get<Exec>(exec);
  Stream& stream = stream_of(stream_handle);
  require_not_capturing(stream);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  const Exec& exec = get<Exec>(handle);
  Stream& stream = stream_of(stream_handle);
  require_not_capturing(stream);  // as a real driver has it, though its manual does not say so
  submit(stream, ChildOp{exec.plan});
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  require_no_capture();
  const std::unique_ptr<Exec> exec(&get<Exec>(handle));
  --state().live.execs;
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec handle, CUgraph graph_handle,
                           CUgraphExecUpdateResultInfo* info) {
  Exec& exec = get<Exec>(handle);
  const Graph& graph = get<Graph>(graph_handle);
  require(info);
  *info = {};
  info->result = compare(*exec.plan, graph, *info);
  require(info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  exec.plan = plan_of(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* params) {
  require(params);
  return replace(exec, node, kernel_op(*params));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context) {
  require(params);
  get<Context>(context);
  return replace(exec, node, memset_op(*params));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* params, CUcontext context) {
  require(params);
  get<Context>(context);
  return replace(exec, node, memcpy_op(*params));
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return replace(exec, node, ChildOp{plan_of(get<Graph>(child))});
}

}  // namespace api
}  // namespace jge::host

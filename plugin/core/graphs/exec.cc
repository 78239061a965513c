// plugin/core/graphs/exec.cc: an executable graph, and what each of its nodes was told last.
#include "core/graphs/exec.h"

#include "core/base/error.h"
#include "core/base/stats.h"

namespace jge {
namespace {

CUgraph create(const Driver& driver) {
  CUgraph graph = nullptr;
  JGE_CALL(driver, cuGraphCreate, &graph, 0);
  return graph;
}

}  // namespace

Exec::Exec(const Driver& driver) : driver_(driver), graph_(driver, create(driver)) {}

void Exec::add(const BoundNode& node, Edges edges) {
  wait_for_.clear();
  for (std::uint32_t on : edges) wait_for_.push_back(nodes_[on]);
  std::visit(
      [&](const auto& kind) {
        nodes_.push_back(kind.add_to(driver_, graph_.get(), wait_for_));
        told_.emplace_back(kind.told(values_));
        kind.add_to(topology_, edges);
      },
      node);
}

void Exec::instantiate() {
  const RelaxedCaptureScope relaxed(driver_);
  CUgraphExec exec = nullptr;
  const CUresult result = driver_.cuGraphInstantiateWithFlags(&exec, graph_.get(), 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    throw Error(Code::resource_exhausted,
                "the device has no memory left for a graph of " + std::to_string(size()) + " nodes",
                result);
  }
  check(driver_, result, "cuGraphInstantiateWithFlags");
  exec_ = GraphExec(driver_, exec);
  count(stats().instantiations);
}

void Exec::launch(CUstream stream) {
  JGE_CALL(driver_, cuGraphLaunch, exec_.get(), stream);
  count(stats().graph_launches);
}

}  // namespace jge

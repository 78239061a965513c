// plugin/core/graphs/exec.cc: an executable graph, and what each of its nodes was told last.
#include "core/graphs/exec.h"

#include <cstring>

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

void Exec::add(const Launch& launch, std::span<const std::uint32_t> dependencies) {
  nodes_.push_back(add_to_graph(driver_, graph_.get(), launch, nodes_of(dependencies)));
  const KernelNode& node = *launch.node;
  const std::size_t first = parameters_.size();
  told_.push_back(ToldLaunch{launch.function, node.grid, node.block, node.shared_bytes, first});
  for (std::size_t i = 0; i < launch.sizes.size(); ++i) {
    const auto* bytes = static_cast<const std::byte*>(launch.parameters[i]);
    parameters_.insert(parameters_.end(), bytes, bytes + launch.sizes[i]);
  }
  topology_.add(node, parameters_.size() - first, dependencies);
}

void Exec::add(const Memset& memset, std::span<const std::uint32_t> dependencies) {
  nodes_.push_back(add_to_graph(driver_, graph_.get(), memset, nodes_of(dependencies)));
  told_.push_back(memset);
  topology_.add_memset(memset.element_bytes, dependencies);
}

void Exec::add(const Memcpy& memcpy, std::span<const std::uint32_t> dependencies) {
  nodes_.push_back(add_to_graph(driver_, graph_.get(), memcpy, nodes_of(dependencies)));
  told_.push_back(memcpy);
  topology_.add_memcpy(dependencies);
}

void Exec::add_empty(std::span<const std::uint32_t> dependencies) {
  const auto wait_for = nodes_of(dependencies);
  CUgraphNode added = nullptr;
  JGE_CALL(driver_, cuGraphAddEmptyNode, &added, graph_.get(), wait_for.data(), wait_for.size());
  nodes_.push_back(added);
  told_.emplace_back();
  topology_.add_empty(dependencies);
}

void Exec::add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies) {
  const auto wait_for = nodes_of(dependencies);
  CUgraphNode added = nullptr;
  JGE_CALL(driver_, cuGraphAddChildGraphNode, &added, graph_.get(), wait_for.data(),
           wait_for.size(), child.get());
  nodes_.push_back(added);
  told_.emplace_back();
  topology_.add_child(child, dependencies);
}

std::span<const CUgraphNode> Exec::nodes_of(std::span<const std::uint32_t> dependencies) {
  wait_for_.clear();
  for (std::uint32_t on : dependencies) wait_for_.push_back(nodes_[on]);
  return wait_for_;
}

void Exec::instantiate() {
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

bool Exec::update(std::uint32_t index, const Launch& launch) {
  ToldLaunch& told = std::get<ToldLaunch>(told_[index]);
  const KernelNode& node = *launch.node;
  bool changed = !told.is(launch.function, node);
  std::byte* last = parameters_.data() + told.first_parameter;
  for (std::size_t i = 0; i < launch.sizes.size(); last += launch.sizes[i], ++i) {
    if (std::memcmp(last, launch.parameters[i], launch.sizes[i]) == 0) continue;
    std::memcpy(last, launch.parameters[i], launch.sizes[i]);
    changed = true;
  }
  if (!changed) return false;
  told = {launch.function, node.grid, node.block, node.shared_bytes, told.first_parameter};
  set_params(driver_, exec_.get(), nodes_[index], launch);
  return true;
}

template <class Bound>
bool Exec::update_memory(std::uint32_t index, const Bound& node) {
  Bound& told = std::get<Bound>(told_[index]);
  if (told == node) return false;
  told = node;
  set_params(driver_, exec_.get(), nodes_[index], node);
  return true;
}

template bool Exec::update_memory(std::uint32_t, const Memset&);
template bool Exec::update_memory(std::uint32_t, const Memcpy&);

void Exec::update_child(std::uint32_t index, const ChildGraph& child) {
  JGE_CALL(driver_, cuGraphExecChildGraphNodeSetParams, exec_.get(), nodes_[index], child.get());
}

void Exec::launch(CUstream stream) {
  JGE_CALL(driver_, cuGraphLaunch, exec_.get(), stream);
  count(stats().graph_launches);
}

}  // namespace jge

// plugin/driver/host/execute.cc: runs what a stream queued and the nodes of graphs.
#include <cstring>
#include <random>
#include <utility>

#include "driver/host/graph.h"
#include "driver/host/state.h"

namespace jge::host {
namespace {

template <class T>
void fill_row(std::byte* row, unsigned value, std::size_t count) {
  const T element = static_cast<T>(value);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(row + i * sizeof(T), &element, sizeof(T));
}

void run(const MemsetOp& op) {
  const CUDA_MEMSET_NODE_PARAMS& p = op.params;
  auto* row = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(p.dst));
  for (std::size_t y = 0; y < p.height; ++y, row += p.pitch) {
    if (p.elementSize == 1) fill_row<std::uint8_t>(row, p.value, p.width);
    if (p.elementSize == 2) fill_row<std::uint16_t>(row, p.value, p.width);
    if (p.elementSize == 4) fill_row<std::uint32_t>(row, p.value, p.width);
  }
}

void run(const HostOp& op) {
  struct Scope {
    Scope() { in_host_function = true; }
    ~Scope() { in_host_function = false; }
  } scope;
  op.function(op.data);
}

// Ready nodes in a random order. With the order that instantiation found where no seed is given.
std::vector<std::size_t> order_of(const Graph& graph, std::mt19937_64* random) {
  if (!random) return graph.order;
  std::vector<std::size_t> order, ready, missing(graph.nodes.size());
  std::vector<std::vector<std::size_t>> next(graph.nodes.size());
  for (const auto& node : graph.nodes) {
    missing[node->index] = node->dependencies.size();
    if (node->dependencies.empty()) ready.push_back(node->index);
    for (const Node* dependency : node->dependencies) {
      next[dependency->index].push_back(node->index);
    }
  }
  while (!ready.empty()) {
    std::swap(ready[(*random)() % ready.size()], ready.back());
    const std::size_t node = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (const std::size_t other : next[node]) {
      if (--missing[other] == 0) ready.push_back(other);
    }
  }
  return order;
}

CUresult run(const Operation& operation, std::mt19937_64* random, std::string& message) {
  if (const auto* kernel = std::get_if<KernelOp>(&operation)) return run_kernel(*kernel, message);
  if (const auto* memset = std::get_if<MemsetOp>(&operation)) run(*memset);
  if (const auto* memcpy = std::get_if<MemcpyOp>(&operation)) {
    std::memmove(memcpy->to, memcpy->from, memcpy->bytes);
  }
  if (const auto* host = std::get_if<HostOp>(&operation)) run(*host);
  if (const auto* event = std::get_if<EventOp>(&operation)) event->record->time = now();
  if (const auto* child = std::get_if<ChildOp>(&operation)) {
    for (const std::size_t index : order_of(*child->graph, random)) {
      const CUresult result = run(child->graph->nodes[index]->operation, random, message);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult execute(const Operation& operation, std::optional<std::uint64_t> seed,
                 std::string& message) {
  if (!seed) return run(operation, nullptr, message);
  std::mt19937_64 random(*seed);
  return run(operation, &random, message);
}

}  // namespace jge::host

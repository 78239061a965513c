// plugin/core/graphs/topology.cc: what two graphs must share for the executable of one to run the
// other.
#include "core/graphs/topology.h"

#include "core/nodes/launch.h"

namespace jge {
namespace {

// Low byte of a node's first word.
enum Kind : std::uint64_t { kKernel = 1, kEmpty = 2, kChild = 3, kMemset = 4, kMemcpy = 5 };
constexpr std::uint64_t kCooperative = 1 << 8;
constexpr std::uint64_t kCluster = 1 << 9;

}  // namespace

// Ends a node.
inline void Topology::push_edges(std::span<const std::uint32_t> dependencies) {
  std::size_t i = 0;
  for (; i + 1 < dependencies.size(); i += 2) {
    push(std::uint64_t{dependencies[i]} << 32 | dependencies[i + 1]);
  }
  if (i < dependencies.size()) push(std::uint64_t{dependencies[i]} << 32);
  ++size_;
}

// A node keeps room for its arguments, so a function with more of them is no patch.
void Topology::add(const KernelNode& node, std::uint64_t parameter_bytes,
                   std::span<const std::uint32_t> dependencies) {
  std::uint64_t head = kKernel | parameter_bytes << 16 | std::uint64_t{dependencies.size()} << 32;
  if (node.cooperative) head |= kCooperative;
  const bool clustered = has_cluster(node);
  if (clustered) head |= kCluster;
  push(head);
  if (clustered) {
    push(std::uint64_t{node.cluster.x} << 32 | node.cluster.y);
    push(node.cluster.z);
  }
  push_edges(dependencies);
}

// An executable graph mostly takes another number of elements; their size may change what runs it.
void Topology::add_memset(std::uint32_t element_bytes,
                          std::span<const std::uint32_t> dependencies) {
  push(kMemset | std::uint64_t{element_bytes} << 16 | std::uint64_t{dependencies.size()} << 32);
  push_edges(dependencies);
}

void Topology::add_memcpy(std::span<const std::uint32_t> dependencies) {
  push(kMemcpy | std::uint64_t{dependencies.size()} << 32);
  push_edges(dependencies);
}

void Topology::add_empty(std::span<const std::uint32_t> dependencies) {
  push(kEmpty | std::uint64_t{dependencies.size()} << 32);
  push_edges(dependencies);
}

void Topology::add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies) {
  push(kChild | std::uint64_t{dependencies.size()} << 32);
  push(child.words().size());
  for (std::uint64_t word : child.words()) push(word);
  updatable_ = updatable_ && child.updatable();
  push_edges(dependencies);
}

void Topology::clear() {
  size_ = 0;
  updatable_ = true;
  hash_ = {};
  words_.clear();
}

}  // namespace jge

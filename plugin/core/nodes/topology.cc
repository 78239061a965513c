// plugin/core/nodes/topology.cc: what two graphs must share for the executable of one to run the
// other.
#include "core/nodes/topology.h"

namespace jge {

void Topology::add(std::uint32_t head, Edges edges, std::span<const std::uint64_t> more) {
  push(head | std::uint64_t{edges.size()} << 32);
  for (std::uint64_t word : more) push(word);
  // Two to a word.
  std::size_t i = 0;
  for (; i + 1 < edges.size(); i += 2) push(std::uint64_t{edges[i]} << 32 | edges[i + 1]);
  if (i < edges.size()) push(std::uint64_t{edges[i]} << 32);
  ++size_;
}

void Topology::clear() {
  size_ = 0;
  updatable_ = true;
  hash_ = {};
  words_.clear();
}

}  // namespace jge

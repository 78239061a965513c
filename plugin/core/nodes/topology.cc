// plugin/core/nodes/topology.cc: what two graphs must share for the executable of one to run the
// other.
#include "core/nodes/topology.h"

namespace jge {

void Topology::add(std::uint32_t head, Edges edges, std::span<const std::uint64_t> more) {
  const std::size_t n = edges.size();
  std::uint64_t* word = words_.take(1 + more.size() + (n + 1) / 2);
  const auto put = [&](std::uint64_t value) {
    *word++ = value;
    hash_.mix(value);
  };
  put(head | std::uint64_t{n} << 32);
  for (std::uint64_t value : more) put(value);
  // Two to a word.
  std::size_t i = 0;
  for (; i + 1 < n; i += 2) put(std::uint64_t{edges[i]} << 32 | edges[i + 1]);
  if (i < n) put(std::uint64_t{edges[i]} << 32);
  ++size_;
}

void Topology::clear() {
  size_ = 0;
  updatable_ = true;
  hash_ = {};
  words_.clear();
}

}  // namespace jge

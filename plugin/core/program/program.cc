// plugin/core/program/program.cc: the immutable node list that one custom call carries.
#include "core/program/program.h"

#include <algorithm>
#include <numeric>

namespace jge {

void Program::accesses(std::size_t node, std::vector<Access>& out) const {
  out.clear();
  for (const Binding& binding : bindings(node)) {
    if (!binding.pointer()) continue;
    out.push_back({space(binding.buffer), binding.offset, binding.offset + binding.bytes,
                   binding.reads, binding.writes});
  }
}

void Program::record() {
  Hazards hazards;
  std::vector<Access> touched;
  first_edge_.push_back(0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    accesses(i, touched);
    const auto dependencies = hazards.add(touched);
    edges_.insert(edges_.end(), dependencies.begin(), dependencies.end());
    first_edge_.push_back(edges_.size());
  }
  bytes = hazards.bytes();
}

std::vector<std::vector<Conflict>> Program::conflicts() const {
  Hazards hazards;
  std::vector<Access> touched;
  std::vector<std::vector<Conflict>> found(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    accesses(i, touched);
    hazards.watch(&found[i]);
    const auto dependencies = hazards.add(touched);
    std::erase_if(found[i], [&](const Conflict& conflict) {
      return !std::ranges::binary_search(dependencies, conflict.on);
    });
  }
  return found;
}

std::vector<std::vector<std::uint32_t>> Program::cut(std::uint32_t max_nodes) const {
  const auto n = static_cast<std::uint32_t>(nodes.size());
  std::vector<std::uint32_t> level(n, 0), order(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t on : dependencies(i)) level[i] = std::max(level[i], level[on] + 1);
  }
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t i) { return level[i]; });
  const std::uint32_t full = std::max(max_nodes, (n + kMaxGroups - 1) / kMaxGroups);
  std::vector<std::vector<std::uint32_t>> groups;
  for (std::uint32_t k = 0; k < n; ++k) {
    const bool begins_level = k == 0 || level[order[k - 1]] != level[order[k]];
    if (k == 0 || (begins_level && groups.back().size() >= full)) groups.emplace_back();
    groups.back().push_back(order[k]);
  }
  return groups;
}

}  // namespace jge

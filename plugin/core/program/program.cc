// plugin/core/program/program.cc: the immutable node list that one custom call carries.
#include "core/program/program.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

namespace jge {

void Program::accesses(std::size_t node, std::vector<Access>& out) const {
  out.clear();
  for (const Binding& binding : bindings(node)) {
    if (!binding.pointer()) continue;
    out.push_back({space(binding.buffer), binding.offset, binding.offset + binding.bytes,
                   binding.reads, binding.writes});
  }
  if (variables(node)) {
    const std::uint32_t image = kernels[std::get<KernelNode>(nodes[node]).kernel].image;
    out.push_back({modules_[image], 0, 1, true, true});
  }
}

const ImageBytes* Program::variables(std::size_t i) const {
  const auto* kernel = std::get_if<KernelNode>(&nodes[i]);
  if (!kernel) return nullptr;
  const ImageBytes* image = images[kernels[kernel->kernel].image].get();
  return image->has_variables() ? image : nullptr;
}

void Program::record() {
  // Behind the buffers' spaces; equal images are one module on a device.
  std::unordered_map<const ImageBytes*, std::uint32_t> spaces;
  for (const auto& image : images) {
    const auto next = static_cast<std::uint32_t>(arguments.size() + results.size() + spaces.size());
    modules_.push_back(spaces.try_emplace(image.get(), next).first->second);
  }
  Hazards hazards(true);
  std::vector<Access> touched;
  std::vector<Node> with_joins;
  std::vector<std::size_t> first_binding{0};
  first_edge_.push_back(0);
  const auto add = [&](const Node& node, Edges edges, std::size_t bindings_end) {
    with_joins.push_back(node);
    first_binding.push_back(bindings_end);
    edges_.insert(edges_.end(), edges.begin(), edges.end());
    first_edge_.push_back(edges_.size());
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    accesses(i, touched);
    const auto dependencies = hazards.add(touched);
    for (const auto& edges : hazards.joins()) add(JoinNode(), edges, first_binding_[i]);
    add(nodes[i], dependencies, first_binding_[i + 1]);
  }
  nodes = std::move(with_joins);
  first_binding_ = std::move(first_binding);
  bytes = hazards.bytes();
  std::unordered_set<const ImageBytes*> written;  // a byte of each stands for its variables
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (const ImageBytes* image = variables(i)) written.insert(image);
  }
  bytes -= written.size();
}

std::vector<std::vector<Conflict>> Program::conflicts() const {
  Hazards hazards(true);
  std::vector<Access> touched;
  std::vector<std::vector<Conflict>> found(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (std::holds_alternative<JoinNode>(nodes[i])) continue;  // comes with the node behind it
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

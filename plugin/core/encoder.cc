// plugin/core/encoder.cc: gathers the nodes for one stream and commits them in batches.
#include "core/encoder.h"

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "core/options.h"
#include "core/stats.h"

namespace jge {

void Encoder::append(CUfunction function, const KernelNode& node, const std::string& label,
                     std::span<const std::span<const std::byte>> parameters,
                     std::span<const Access> accesses) {
  std::lock_guard lock(mutex_);
  try {
    append_locked(function, node, label, parameters, accesses);
  } catch (...) {
    clear();
    throw;
  }
}

void Encoder::append_locked(CUfunction function, const KernelNode& node, const std::string& label,
                            std::span<const std::span<const std::byte>> parameters,
                            std::span<const Access> accesses) {
  auto dependencies = hazards_.add(accesses);
  const GraphLimits limits =
      graph_limits(device_.info().compute_major, device_.info().compute_minor);
  const bool full = pending_.size() >= std::size_t(limits.max_ops) ||
                    bytes_ >= std::uint64_t(limits.max_mb) * 1'000'000;
  // A cut falls only where a new level begins, so independent nodes stay together.
  if (full && hazards_.levels().back() > depth_) {
    commit_locked();
    dependencies = hazards_.add(accesses);
  }
  depth_ = std::max(depth_, hazards_.levels().back());

  Pending& pending = pending_.emplace_back();
  pending.function = function;
  pending.node = node;
  pending.label = &label;
  pending.first_edge = edges_.size();
  pending.edge_count = dependencies.size();
  edges_.insert(edges_.end(), dependencies.begin(), dependencies.end());
  pending.first_parameter = parameter_offset_.size();
  pending.parameter_count = parameters.size();
  for (std::span<const std::byte> parameter : parameters) {
    parameter_offset_.push_back(values_.size());
    sizes_.push_back(static_cast<std::uint32_t>(parameter.size()));
    values_.insert(values_.end(), parameter.begin(), parameter.end());
  }
  for (const Access& access : accesses) {
    const auto key = [](const Access& a) { return std::tuple(a.space, a.begin, a.end); };
    auto at = std::ranges::lower_bound(ranges_, key(access), {}, key);
    if (at != ranges_.end() && key(*at) == key(access)) continue;
    ranges_.insert(at, access);
    bytes_ += access.end - access.begin;
  }
}

void Encoder::run(ProgramOnDevices::OnDevice& program, std::span<void* const> buffers) {
  std::lock_guard lock(mutex_);
  commit_locked();
  const bool small = program.loaded.program().nodes.size() < ProgramGraph::kMinGraphNodes;
  if (small || !options().use_graphs || options().debug) {
    LaunchSink sink(device_.driver(), stream_, options().debug);
    program.loaded.play(buffers, sink);
  } else {
    program.graph.run(buffers, stream_);
  }
}

void Encoder::commit() {
  std::lock_guard lock(mutex_);
  commit_locked();
}

void Encoder::commit_locked() {
  if (pending_.empty()) return;
  try {
    LaunchSink sink(device_.driver(), stream_, options().debug);
    for (const Pending& pending : pending_) {
      parameters_.clear();
      for (std::size_t i = 0; i < pending.parameter_count; ++i) {
        parameters_.push_back(values_.data() + parameter_offset_[pending.first_parameter + i]);
      }
      sink.add({pending.function, &pending.node, parameters_.data(),
                std::span(sizes_).subspan(pending.first_parameter, pending.parameter_count),
                pending.label},
               std::span(edges_).subspan(pending.first_edge, pending.edge_count));
    }
    sink.finish();
  } catch (...) {
    clear();
    throw;
  }
  count(stats().commits);
  clear();
}

void Encoder::clear() {
  hazards_.clear();
  depth_ = 0;
  bytes_ = 0;
  ranges_.clear();
  pending_.clear();
  edges_.clear();
  values_.clear();
  parameter_offset_.clear();
  sizes_.clear();
}

}  // namespace jge

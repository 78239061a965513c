// plugin/core/encoder.cc: gathers the nodes for one stream and commits them in batches.
#include "core/encoder.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/options.h"
#include "core/stats.h"

namespace jge {
namespace {

constexpr std::size_t kValueAlignment = 16;

}  // namespace

void Encoder::append(CUfunction function, const KernelNode& node, const std::string& label,
                     std::span<const std::span<const std::byte>> parameters,
                     std::span<const Access> accesses) {
  std::lock_guard lock(mutex_);
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
    const std::size_t offset =
        (values_.size() + kValueAlignment - 1) / kValueAlignment * kValueAlignment;
    values_.resize(offset + parameter.size());
    std::memcpy(values_.data() + offset, parameter.data(), parameter.size());
    parameter_offset_.push_back(offset);
  }
  for (const Access& access : accesses) {
    auto at = std::ranges::lower_bound(ranges_, access.begin, {}, &Access::begin);
    if (at != ranges_.end() && at->begin == access.begin && at->end == access.end) continue;
    ranges_.insert(at, access);
    bytes_ += access.end - access.begin;
  }
}

void Encoder::run(const LoadedProgram& program, std::span<void* const> buffers) {
  std::lock_guard lock(mutex_);
  commit_locked();
  LaunchSink sink(device_.driver(), stream_, options().debug);
  program.play(buffers, sink);
}

void Encoder::commit() {
  std::lock_guard lock(mutex_);
  commit_locked();
}

void Encoder::commit_locked() {
  if (pending_.empty()) return clear();
  try {
    LaunchSink sink(device_.driver(), stream_, options().debug);
    for (const Pending& pending : pending_) {
      parameters_.clear();
      for (std::size_t i = 0; i < pending.parameter_count; ++i) {
        parameters_.push_back(values_.data() + parameter_offset_[pending.first_parameter + i]);
      }
      sink.add({pending.function, &pending.node, parameters_.data(), pending.label},
               std::span(edges_).subspan(pending.first_edge, pending.edge_count));
    }
    sink.finish();
  } catch (...) {
    clear();
    throw;
  }
  count(stats().nodes, pending_.size());
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
}

void capture(const LoadedProgram& program, std::span<void* const> buffers, CUstream stream) {
  CaptureSink sink(program.device().driver(), stream);
  program.play(buffers, sink);
}

bool is_capturing(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  JGE_CALL(driver, cuStreamIsCapturing, stream, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    throw Error(Code::internal,
                "the stream's capture was invalidated before this call: an operation that a "
                "capture forbids came earlier on this stream");
  }
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace jge

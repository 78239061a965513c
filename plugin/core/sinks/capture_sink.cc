// plugin/core/sinks/capture_sink.cc: nodes into the graph that a stream is being captured into.
#include "core/sinks/capture_sink.h"

#include "core/base/error.h"
#include "core/base/stats.h"

namespace jge {
namespace {

[[noreturn]] void throw_invalidated() {
  throw Error(
      Code::internal,
      std::string("the stream's capture was invalidated before this call: an operation that "
                  "a capture forbids came earlier, here or in another thread, such as an "
                  "allocation; ") +
          kOutOfCaptures);
}

}  // namespace

CaptureSink::CaptureSink(const Driver& driver, CUstream stream) : driver_(driver), stream_(stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* dependencies = nullptr;
  std::size_t count = 0;
  // Edge data is not asked for: were one of the edges programmatic, the driver would say so.
  JGE_CALL(driver, cuStreamGetCaptureInfo, stream, &status, nullptr, &graph_, &dependencies,
           nullptr, &count);
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) throw_invalidated();
  before_.assign(dependencies, dependencies + count);
}

void CaptureSink::add(const BoundNode& node, Edges edges) {
  wait_for_.clear();
  for (std::uint32_t on : edges) {
    wait_for_.push_back(nodes_[on]);
    has_dependents_[on] = true;
  }
  const std::vector<CUgraphNode>& wait_for = edges.empty() ? before_ : wait_for_;
  nodes_.push_back(
      std::visit([&](const auto& kind) { return kind.add_to(driver_, graph_, wait_for); }, node));
  has_dependents_.push_back(false);
}

void CaptureSink::finish() {
  if (nodes_.empty()) return;
  std::vector<CUgraphNode>& last = wait_for_;
  last.clear();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!has_dependents_[i]) last.push_back(nodes_[i]);
  }
  JGE_CALL(driver_, cuStreamUpdateCaptureDependencies, stream_, last.data(), nullptr, last.size(),
           CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  count(stats().captured_nodes, nodes_.size());
}

bool is_capturing(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  JGE_CALL(driver, cuStreamIsCapturing, stream, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) throw_invalidated();
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace jge

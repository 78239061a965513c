// plugin/core/sinks/sink.cc: where a batch of nodes goes.
#include "core/sinks/sink.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/sinks/unset_reads.h"

namespace jge {
namespace {

[[noreturn]] void throw_invalidated() {
  throw Error(Code::internal,
              "the stream's capture was invalidated before this call: an operation that a capture "
              "forbids came earlier");
}

std::vector<Extent> extents_of(const Launch& launch) {
  std::vector<Extent> extents;
  const auto& [bindings, kernel] = launch.known;
  for (std::size_t p = 0; p < bindings.size(); ++p) {
    const Binding& binding = bindings[p];
    if (!binding.pointer()) continue;
    const void* begin = *static_cast<void* const*>(launch.parameters[p]);
    extents.push_back({kernel->parameters[p].name, begin, binding.bytes, binding.writes,
                       binding.writes && !binding.reads});
  }
  return extents;
}

}  // namespace

template <class Bound>
inline void LaunchSink::hand_over(const Bound& node) {
  if (debug_ && launched_ == 0) [[unlikely]]
    settle_first(node);
  enqueue(driver_, stream_, node);
  ++launched_;
  if (debug_) [[unlikely]]
    settle(node);
}

template <class Bound>
void LaunchSink::settle_first(const Bound& node) {
  const CUresult result = driver_.cuStreamSynchronize(stream_);
  if (result == CUDA_SUCCESS) return;
  throw Error(Code::internal,
              "work queued before " + name_of(node) + " failed: " + describe(driver_, result),
              result);
}

template <class Bound>
void LaunchSink::settle(const Bound& node) {
  const CUresult result = driver_.cuStreamSynchronize(stream_);
  // Before a failure, which one of them may have caused.
  if (const auto reads = std::exchange(unset_reads_, nullptr)) {
    for (const UnsetRead& read : *reads) warn_of(name_of(node), read);
  }
  if (result == CUDA_SUCCESS) return;
  const std::string said = take_fault(driver_);
  throw Error(
      Code::internal,
      name_of(node) + " failed: " + describe(driver_, result) + (said.empty() ? "" : ": " + said),
      result);
}

void LaunchSink::add(const Launch& launch, std::span<const std::uint32_t>) {
  if (debug_ && driver_.expect) [[unlikely]] {
    unset_reads_ = std::make_shared<std::vector<UnsetRead>>();
    driver_.expect(extents_of(launch), unset_reads_);
  }
  hand_over(launch);
}
void LaunchSink::add(const Memset& memset, std::span<const std::uint32_t>) { hand_over(memset); }
void LaunchSink::add(const Memcpy& memcpy, std::span<const std::uint32_t>) { hand_over(memcpy); }

void LaunchSink::add_empty(std::span<const std::uint32_t>) {}

void LaunchSink::add_child(const ChildGraph& child, std::span<const std::uint32_t>) {
  CUgraphExec made = nullptr;
  JGE_CALL(driver_, cuGraphInstantiateWithFlags, &made, child.get(), 0);
  // Destroyed at once: the driver keeps an executable graph until it has run.
  const GraphExec exec(driver_, made);
  JGE_CALL(driver_, cuGraphLaunch, exec.get(), stream_);
  count(stats().instantiations);
  count(stats().graph_launches);
}

void LaunchSink::finish() { count(stats().direct_launches, launched_); }

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

void CaptureSink::add(const Launch& launch, std::span<const std::uint32_t> dependencies) {
  added(add_to_graph(driver_, graph_, launch, nodes_of(dependencies)));
}

void CaptureSink::add(const Memset& memset, std::span<const std::uint32_t> dependencies) {
  added(add_to_graph(driver_, graph_, memset, nodes_of(dependencies)));
}

void CaptureSink::add(const Memcpy& memcpy, std::span<const std::uint32_t> dependencies) {
  added(add_to_graph(driver_, graph_, memcpy, nodes_of(dependencies)));
}

void CaptureSink::add_empty(std::span<const std::uint32_t> dependencies) {
  const auto wait_for = nodes_of(dependencies);
  CUgraphNode node = nullptr;
  JGE_CALL(driver_, cuGraphAddEmptyNode, &node, graph_, wait_for.data(), wait_for.size());
  added(node);
}

void CaptureSink::add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies) {
  const auto wait_for = nodes_of(dependencies);
  CUgraphNode node = nullptr;
  JGE_CALL(driver_, cuGraphAddChildGraphNode, &node, graph_, wait_for.data(), wait_for.size(),
           child.get());
  added(node);
}

std::span<const CUgraphNode> CaptureSink::nodes_of(std::span<const std::uint32_t> dependencies) {
  if (dependencies.empty()) return before_;
  scratch_.clear();
  for (std::uint32_t on : dependencies) {
    scratch_.push_back(nodes_[on]);
    has_dependents_[on] = true;
  }
  return scratch_;
}

void CaptureSink::added(CUgraphNode node) {
  nodes_.push_back(node);
  has_dependents_.push_back(false);
}

void CaptureSink::finish() {
  if (nodes_.empty()) return;
  scratch_.clear();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!has_dependents_[i]) scratch_.push_back(nodes_[i]);
  }
  JGE_CALL(driver_, cuStreamUpdateCaptureDependencies, stream_, scratch_.data(), nullptr,
           scratch_.size(), CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  count(stats().captured_nodes, nodes_.size());
}

bool is_capturing(const Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  JGE_CALL(driver, cuStreamIsCapturing, stream, &status);
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) throw_invalidated();
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

}  // namespace jge

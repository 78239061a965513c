// plugin/core/sinks/launch_sink.cc: nodes straight onto a stream.
#include "core/sinks/launch_sink.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/base/waiting.h"
#include "core/sinks/unset_reads.h"

namespace jge {
namespace {

std::vector<Extent> extents_of(const Launch& launch) {
  std::vector<Extent> extents;
  const auto& [bindings, kernel] = launch.known;
  const auto add = [&](const std::string& name, const Binding& binding, const void* at) {
    const void* begin = nullptr;
    std::memcpy(&begin, at, sizeof begin);
    extents.push_back(
        {name, begin, binding.bytes, binding.writes, binding.writes && !binding.reads});
  };
  const std::size_t count = launch.sizes.size();
  for (std::size_t p = 0; p < bindings.size() && p < count; ++p) {
    if (bindings[p].pointer()) {
      add(kernel->parameters[p].name, bindings[p], launch.parameters[p]);
    }
  }
  for (std::size_t m = 0; count + m < bindings.size(); ++m) {
    const Member& member = kernel->members[m];
    const auto* value = static_cast<const std::byte*>(launch.parameters[member.parameter]);
    add(member.name, bindings[count + m], value + member.offset);
  }
  return extents;
}

std::string name_of(const BoundNode& node) {
  return std::visit([](const auto& kind) { return kind.name(); }, node);
}

}  // namespace

void LaunchSink::add(const BoundNode& node, Edges) {
  const bool one_operation = std::visit([](const auto& kind) { return kind.kOneOperation; }, node);
  const bool watched = debug_ && one_operation;
  if (watched) [[unlikely]]
    watch(node);
  std::visit([this](const auto& kind) { kind.enqueue(driver_, stream_); }, node);
  launched_ += one_operation;
  if (watched) [[unlikely]]
    settle(node);
}

// Before a node is handed over: what was queued earlier has run, and the driver knows how large the
// kernel's arrays are.
void LaunchSink::watch(const BoundNode& node) {
  const CUresult result = launched_ == 0 ? wait_for(driver_, stream_) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) {
    throw Error(Code::internal,
                "work queued before " + name_of(node) + " failed: " + describe(driver_, result),
                result);
  }
  // Last: the driver applies it to this thread's next launch.
  if (const auto* launch = std::get_if<Launch>(&node); launch && driver_.expect) {
    unset_reads_ = std::make_shared<std::vector<UnsetRead>>();
    driver_.expect(extents_of(*launch), unset_reads_);
  }
}

// After it.
void LaunchSink::settle(const BoundNode& node) {
  const CUresult result = wait_for(driver_, stream_);
  // Before a warning, whose hook may call kernels: they say things of their own, and the node's
  // parameters are theirs by then.
  const std::string said = result != CUDA_SUCCESS ? take_fault(driver_) : "";
  // Before a failure, which one of them may have caused.
  if (const auto reads = std::exchange(unset_reads_, nullptr)) {
    for (const UnsetRead& read : *reads) warn_of(name_of(node), read);
  }
  if (result == CUDA_SUCCESS) return;
  throw Error(
      Code::internal,
      name_of(node) + " failed: " + describe(driver_, result) + (said.empty() ? "" : ": " + said),
      result);
}

void LaunchSink::finish() { count(stats().direct_launches, launched_); }

}  // namespace jge

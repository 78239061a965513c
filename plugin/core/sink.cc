// plugin/core/sink.cc: where a batch of nodes goes.
#include "core/sink.h"

#include "core/error.h"
#include "core/stats.h"

namespace jge {
namespace {

bool has_cluster(const KernelNode& node) {
  return node.cluster.x * node.cluster.y * node.cluster.z > 1;
}

CUlaunchAttribute cluster_attribute(const KernelNode& node) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {node.cluster.x, node.cluster.y, node.cluster.z};
  return attribute;
}

CUlaunchAttribute cooperative_attribute() {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  return attribute;
}

[[noreturn]] void throw_launch_error(const Driver& driver, CUresult result, const Launch& launch) {
  if (is_sticky(result)) {
    throw Error(Code::internal,
                "kernel '" + *launch.label +
                    "' could not be launched because work queued before it failed: " +
                    describe(driver, result) +
                    ". The device's context is lost; to find the kernel that failed, run again "
                    "with JAX_GRAPHENC_DEBUG=1 or under compute-sanitizer",
                result);
  }
  const KernelNode& node = *launch.node;
  const auto dim = [](const Dim3& d) {
    return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) +
           ")";
  };
  throw Error(Code::internal,
              "launch of kernel '" + *launch.label + "' failed: " + describe(driver, result) +
                  "; grid " + dim(node.grid) + ", block " + dim(node.block) + ", cluster " +
                  dim(node.cluster) + ", " + std::to_string(node.shared_bytes) +
                  " bytes of dynamic shared memory",
              result);
}

}  // namespace

void LaunchSink::add(const Launch& launch, std::span<const std::uint32_t>) {
  const KernelNode& node = *launch.node;
  CUlaunchAttribute attributes[2];
  CUlaunchConfig config{};
  config.gridDimX = node.grid.x;
  config.gridDimY = node.grid.y;
  config.gridDimZ = node.grid.z;
  config.blockDimX = node.block.x;
  config.blockDimY = node.block.y;
  config.blockDimZ = node.block.z;
  config.sharedMemBytes = node.shared_bytes;
  config.hStream = stream_;
  config.attrs = attributes;
  if (has_cluster(node)) attributes[config.numAttrs++] = cluster_attribute(node);
  if (node.cooperative) attributes[config.numAttrs++] = cooperative_attribute();
  CUresult result = driver_.cuLaunchKernelEx(&config, launch.function, launch.parameters, nullptr);
  if (result != CUDA_SUCCESS) throw_launch_error(driver_, result, launch);
  count(stats().direct_launches);
  if (!debug_) return;
  result = driver_.cuStreamSynchronize(stream_);
  if (result != CUDA_SUCCESS) {
    const std::string said = driver_.fault ? driver_.fault() : "";
    throw Error(Code::internal,
                "kernel '" + *launch.label + "' failed: " + describe(driver_, result) +
                    (said.empty() ? "" : ": " + said),
                result);
  }
}

CaptureSink::CaptureSink(const Driver& driver, CUstream stream) : driver_(driver), stream_(stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUgraphNode* dependencies = nullptr;
  std::size_t count = 0;
  // Full edges only: with edge data asked for as null, programmatic edges would be an error.
  JGE_CALL(driver, cuStreamGetCaptureInfo, stream, &status, nullptr, &graph_, &dependencies,
           nullptr, &count);
  if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    throw Error(Code::internal,
                "the stream's capture was invalidated before this call: an operation that a "
                "capture forbids came earlier on this stream");
  }
  before_.assign(dependencies, dependencies + count);
}

void CaptureSink::add(const Launch& launch, std::span<const std::uint32_t> dependencies) {
  const KernelNode& node = *launch.node;
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = launch.function;
  params.gridDimX = node.grid.x;
  params.gridDimY = node.grid.y;
  params.gridDimZ = node.grid.z;
  params.blockDimX = node.block.x;
  params.blockDimY = node.block.y;
  params.blockDimZ = node.block.z;
  params.sharedMemBytes = node.shared_bytes;
  params.kernelParams = launch.parameters;

  std::span<const CUgraphNode> wait_for = before_;
  if (!dependencies.empty()) {
    scratch_.clear();
    for (std::uint32_t on : dependencies) {
      scratch_.push_back(nodes_[on]);
      has_dependents_[on] = true;
    }
    wait_for = scratch_;
  }
  CUgraphNode added = nullptr;
  const CUresult result =
      driver_.cuGraphAddKernelNode(&added, graph_, wait_for.data(), wait_for.size(), &params);
  if (result != CUDA_SUCCESS) throw_launch_error(driver_, result, launch);
  if (has_cluster(node)) {
    const CUlaunchAttribute attribute = cluster_attribute(node);
    JGE_CALL(driver_, cuGraphKernelNodeSetAttribute, added, attribute.id, &attribute.value);
  }
  if (node.cooperative) {
    const CUlaunchAttribute attribute = cooperative_attribute();
    JGE_CALL(driver_, cuGraphKernelNodeSetAttribute, added, attribute.id, &attribute.value);
  }
  nodes_.push_back(added);
  has_dependents_.push_back(false);
  count(stats().captured_nodes);
}

void CaptureSink::finish() {
  if (nodes_.empty()) return;
  scratch_.clear();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!has_dependents_[i]) scratch_.push_back(nodes_[i]);
  }
  JGE_CALL(driver_, cuStreamUpdateCaptureDependencies, stream_, scratch_.data(), nullptr,
           scratch_.size(), CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

}  // namespace jge

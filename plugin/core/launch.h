// plugin/core/launch.h: a kernel node as the driver takes it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/program.h"
#include "driver/driver.h"

namespace jge {

// A kernel node with its addresses bound.
struct Launch {
  CUfunction function = nullptr;
  const KernelNode* node = nullptr;
  void** parameters = nullptr;           // one pointer per parameter; read during the call only
  std::span<const std::uint32_t> sizes;  // bytes of each parameter
  const std::string* label = nullptr;
  const Kernel* kernel = nullptr;  // names and kinds of the parameters, where they are known
};

inline bool has_cluster(const KernelNode& node) {
  return node.cluster.x * node.cluster.y * node.cluster.z > 1;
}

// The configuration of a node's launch, with the attributes that it points to.
class LaunchConfig {
 public:
  LaunchConfig(const KernelNode& node, CUstream stream) {
    config_.gridDimX = node.grid.x;
    config_.gridDimY = node.grid.y;
    config_.gridDimZ = node.grid.z;
    config_.blockDimX = node.block.x;
    config_.blockDimY = node.block.y;
    config_.blockDimZ = node.block.z;
    config_.sharedMemBytes = node.shared_bytes;
    config_.hStream = stream;
    config_.attrs = attributes_;
    if (has_cluster(node)) {
      CUlaunchAttribute& attribute = attributes_[config_.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      attribute.value.clusterDim = {node.cluster.x, node.cluster.y, node.cluster.z};
    }
    if (node.cooperative) {
      CUlaunchAttribute& attribute = attributes_[config_.numAttrs++];
      attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      attribute.value.cooperative = 1;
    }
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  const CUlaunchConfig* get() const { return &config_; }
  std::span<const CUlaunchAttribute> attributes() const { return {attributes_, config_.numAttrs}; }

 private:
  CUlaunchAttribute attributes_[2] = {};
  CUlaunchConfig config_ = {};
};

// The launch as a graph's node takes it; attributes go apart.
CUDA_KERNEL_NODE_PARAMS node_params(const Launch& launch);

// Adds a launch to a graph, with its attributes, behind the nodes it waits for. Throws Error.
CUgraphNode add_to_graph(const Driver& driver, CUgraph graph, const Launch& launch,
                         std::span<const CUgraphNode> wait_for);

// Throws Error with the kernel, its launch and what the driver said.
[[noreturn]] void throw_launch_error(const Driver& driver, CUresult result, const Launch& launch);

}  // namespace jge

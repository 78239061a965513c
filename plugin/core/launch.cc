// plugin/core/launch.cc: a kernel node as the driver takes it.
#include "core/launch.h"

#include "core/error.h"

namespace jge {

CUDA_KERNEL_NODE_PARAMS node_params(const Launch& launch) {
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
  return params;
}

CUgraphNode add_to_graph(const Driver& driver, CUgraph graph, const Launch& launch,
                         std::span<const CUgraphNode> wait_for) {
  const CUDA_KERNEL_NODE_PARAMS params = node_params(launch);
  CUgraphNode added = nullptr;
  const CUresult result =
      driver.cuGraphAddKernelNode(&added, graph, wait_for.data(), wait_for.size(), &params);
  if (result != CUDA_SUCCESS) throw_launch_error(driver, result, launch);
  const LaunchConfig config(*launch.node, nullptr);
  for (const CUlaunchAttribute& attribute : config.attributes()) {
    JGE_CALL(driver, cuGraphKernelNodeSetAttribute, added, attribute.id, &attribute.value);
  }
  return added;
}

void throw_launch_error(const Driver& driver, CUresult result, const Launch& launch) {
  const KernelNode& node = *launch.node;
  throw Error(code_of(result),
              "launch of kernel '" + *launch.label + "' failed: " + describe(driver, result) +
                  "; grid " + text(node.grid) + ", block " + text(node.block) + ", cluster " +
                  text(node.cluster) + ", " + std::to_string(node.shared_bytes) +
                  " bytes of dynamic shared memory" + explain_sticky(result),
              result);
}

}  // namespace jge

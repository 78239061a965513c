// plugin/core/nodes/launch.cc: nodes as the driver takes them.
#include "core/nodes/launch.h"

#include "core/base/error.h"

namespace jge {
namespace {

// With the kernel, its launch and what the driver said.
[[noreturn]] void throw_launch_error(const Driver& driver, CUresult result, const Launch& launch) {
  throw Error(code_of(result),
              "launch of " + name_of(launch) + " failed: " + describe(driver, result) + "; " +
                  describe_launch(*launch.node) + explain_sticky(result),
              result);
}

// A node as a graph's node takes it; a launch's attributes go apart.
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

// One row, however long: an executable graph takes a change of one row only.
CUDA_MEMSET_NODE_PARAMS node_params(const Memset& memset) {
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = memset.to;
  params.value = memset.value;
  params.elementSize = memset.element_bytes;
  params.width = memset.bytes / memset.element_bytes;
  params.height = 1;
  return params;
}

CUDA_MEMCPY3D node_params(const Memcpy& memcpy) {
  CUDA_MEMCPY3D params{};
  params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.srcDevice = memcpy.from;
  params.dstDevice = memcpy.to;
  params.WidthInBytes = memcpy.bytes;
  params.Height = params.Depth = 1;
  return params;
}

}  // namespace

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

CUgraphNode add_to_graph(const Driver& driver, CUgraph graph, const Memset& memset,
                         std::span<const CUgraphNode> wait_for) {
  const CUDA_MEMSET_NODE_PARAMS params = node_params(memset);
  CUgraphNode added = nullptr;
  JGE_CALL(driver, cuGraphAddMemsetNode, &added, graph, wait_for.data(), wait_for.size(), &params,
           memset.context);
  return added;
}

CUgraphNode add_to_graph(const Driver& driver, CUgraph graph, const Memcpy& memcpy,
                         std::span<const CUgraphNode> wait_for) {
  const CUDA_MEMCPY3D params = node_params(memcpy);
  CUgraphNode added = nullptr;
  JGE_CALL(driver, cuGraphAddMemcpyNode, &added, graph, wait_for.data(), wait_for.size(), &params,
           memcpy.context);
  return added;
}

void enqueue(const Driver& driver, CUstream stream, const Launch& launch) {
  const LaunchConfig config(*launch.node, stream);
  const CUresult result =
      driver.cuLaunchKernelEx(config.get(), launch.function, launch.parameters, nullptr);
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_launch_error(driver, result, launch);
}

void enqueue(const Driver& driver, CUstream stream, const Memset& memset) {
  const std::uint32_t value = memset.value;
  const std::uint64_t count = memset.bytes / memset.element_bytes;
  switch (memset.element_bytes) {
    case 1:
      JGE_CALL(driver, cuMemsetD8Async, memset.to, static_cast<std::uint8_t>(value), count, stream);
      break;
    case 2:
      JGE_CALL(driver, cuMemsetD16Async, memset.to, static_cast<std::uint16_t>(value), count,
               stream);
      break;
    default:
      JGE_CALL(driver, cuMemsetD32Async, memset.to, value, count, stream);
  }
}

void enqueue(const Driver& driver, CUstream stream, const Memcpy& memcpy) {
  JGE_CALL(driver, cuMemcpyAsync, memcpy.to, memcpy.from, memcpy.bytes, stream);
}

void set_params(const Driver& driver, CUgraphExec exec, CUgraphNode node, const Launch& launch) {
  const CUDA_KERNEL_NODE_PARAMS params = node_params(launch);
  const CUresult result = driver.cuGraphExecKernelNodeSetParams(exec, node, &params);
  if (result != CUDA_SUCCESS) throw_launch_error(driver, result, launch);
}

void set_params(const Driver& driver, CUgraphExec exec, CUgraphNode node, const Memset& memset) {
  const CUDA_MEMSET_NODE_PARAMS params = node_params(memset);
  JGE_CALL(driver, cuGraphExecMemsetNodeSetParams, exec, node, &params, memset.context);
}

void set_params(const Driver& driver, CUgraphExec exec, CUgraphNode node, const Memcpy& memcpy) {
  const CUDA_MEMCPY3D params = node_params(memcpy);
  JGE_CALL(driver, cuGraphExecMemcpyNodeSetParams, exec, node, &params, memcpy.context);
}

std::string describe_launch(const KernelNode& node) {
  return "grid " + text(node.grid) + ", block " + text(node.block) + ", cluster " +
         text(node.cluster) + ", " + std::to_string(node.shared_bytes) +
         " bytes of dynamic shared memory";
}

std::string name_of(const Launch& launch) { return "kernel '" + *launch.label + "'"; }
std::string name_of(const Memset&) { return "memset"; }
std::string name_of(const Memcpy&) { return "copy"; }

}  // namespace jge

// plugin/driver/host/launch.cc: a launch as an operation: its shape checked, its parameters packed.
#include <cstring>

#include "driver/host/limits.h"
#include "driver/host/operations.h"

namespace jge::host {
namespace {

std::shared_ptr<const Arguments> pack(const JgeHostKernel& kernel, void** params) {
  if (kernel.param_count == 0) return nullptr;
  require(params);
  auto packed = std::make_shared<Arguments>();
  const JgeHostParam& last = kernel.params[kernel.param_count - 1];
  packed->block.resize((last.offset + last.size + sizeof(Arguments::Chunk) - 1) /
                       sizeof(Arguments::Chunk));
  auto* bytes = reinterpret_cast<std::byte*>(packed->block.data());
  for (std::uint32_t i = 0; i < kernel.param_count; ++i) {
    const JgeHostParam& param = kernel.params[i];
    require(params[i] || param.size == 0);
    packed->pointers.push_back(bytes + param.offset);
    std::memcpy(bytes + param.offset, params[i], param.size);
  }
  return packed;
}

}  // namespace

KernelOp kernel_op(Function& function, const std::array<std::uint32_t, 3>& grid,
                   const std::array<std::uint32_t, 3>& block, std::uint32_t shared_bytes,
                   void** params, void** extra) {
  require(!extra);
  std::uint64_t threads = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    require(grid[i] > 0 && grid[i] <= kMaxGrid[i] && block[i] > 0 && block[i] <= kMaxBlock[i]);
    threads *= block[i];
  }
  require(threads <= kMaxThreads);
  require(shared_bytes <= static_cast<std::uint32_t>(function.max_dynamic_shared));
  KernelOp op;
  op.function = &function;
  op.module = function.module->shared_from_this();
  op.grid = grid;
  op.block = block;
  op.shared_bytes = shared_bytes;
  op.arguments = pack(*function.kernel, params);
  return op;
}

KernelOp kernel_op(const CUDA_KERNEL_NODE_PARAMS& params) {
  return kernel_op(get<Function>(params.func), {params.gridDimX, params.gridDimY, params.gridDimZ},
                   {params.blockDimX, params.blockDimY, params.blockDimZ}, params.sharedMemBytes,
                   params.kernelParams, params.extra);
}

// Clusters and cooperative launches need blocks that run at the same time.
void set_attribute(KernelOp& op, CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
      break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      op.priority = value.priority;
      break;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      require(value.cooperative == 0, CUDA_ERROR_NOT_SUPPORTED);
      break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      const auto& cluster = value.clusterDim;
      require(cluster.x <= 1 && cluster.y <= 1 && cluster.z <= 1, CUDA_ERROR_NOT_SUPPORTED);
      op.cluster = {cluster.x, cluster.y, cluster.z};
      break;
    }
    default:
      throw Failure{CUDA_ERROR_NOT_SUPPORTED};
  }
}

}  // namespace jge::host

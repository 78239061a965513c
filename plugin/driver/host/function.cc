// plugin/driver/host/function.cc: a kernel as a function handle: attributes, launches, occupancy.
#include <algorithm>
#include <utility>

#include "driver/host/limits.h"
#include "driver/host/state.h"

namespace jge::host {
namespace api {

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  require(name);
  *name = get<Function>(handle).kernel->name;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, std::size_t index, std::size_t* offset,
                            std::size_t* size) {
  const JgeHostKernel& kernel = *get<Function>(handle).kernel;
  require(offset && index < kernel.param_count);
  *offset = kernel.params[index].offset;
  if (size) *size = kernel.params[index].size;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  const Function& function = get<Function>(handle);
  require(value && attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX);
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? kMaxThreads
           : attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
               ? function.max_dynamic_shared
           : attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ? function.carveout
                                                                             : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  Function& function = get<Function>(handle);
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    require(value >= 0 && value <= kMaxSharedBytesOptIn);
    function.max_dynamic_shared = value;
  } else {
    require(attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    require(value >= -1 && value <= 100);
    function.carveout = value;
  }
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** params,
                          void** extra) {
  Expected expected = std::exchange(thread_expected, {});
  current_context();
  require(config && (config->attrs || config->numAttrs == 0));
  Function& function = get<Function>(handle);
  Stream& stream = stream_of(config->hStream);
  require(function.module->context == stream.context, CUDA_ERROR_INVALID_HANDLE);
  KernelOp op = kernel_op(function, {config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ},
                          config->sharedMemBytes, params, extra);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    set_attribute(op, config->attrs[i].id, config->attrs[i].value);
  }
  op.expected = std::move(expected);
  submit(stream, std::move(op));
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int block_size,
                                                     std::size_t shared_bytes) {
  const Function& function = get<Function>(handle);
  require(blocks && block_size > 0);
  const bool fits = block_size <= kMaxThreads &&
                    shared_bytes <= static_cast<std::size_t>(function.max_dynamic_shared);
  const int by_threads = kMultiprocessorThreads / ((block_size + 31) / 32 * 32);
  const int by_shared =
      fits ? kMultiprocessorSharedBytes / (static_cast<int>(shared_bytes) + kSharedBytesReserved)
           : 0;
  *blocks = std::min({by_threads, by_shared, kMultiprocessorBlocks});
  return CUDA_SUCCESS;
}

// Blocks run one after the other, so there are no clusters.
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                      const CUlaunchConfig* config) {
  get<Function>(handle);
  require(clusters && config);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace api
}  // namespace jge::host

// plugin/driver/driver.h: the CUDA driver API as one table of function pointers.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace jge {

// X(name, version) for every driver function this package calls. The version is the one asked of
// cuGetProcAddress; it also names the typedef of the signature, because unsuffixed names change
// their signature between CUDA 12 and 13. Every function here exists in the oldest driver that is
// supported (kMinimumDriver).
#define JGE_DRIVER_FUNCTIONS(X)                        \
  X(cuInit, 2000)                                      \
  X(cuDriverGetVersion, 2020)                          \
  X(cuGetErrorName, 6000)                              \
  X(cuGetErrorString, 6000)                            \
  /* devices and contexts */                           \
  X(cuDeviceGetCount, 2000)                            \
  X(cuDeviceGet, 2000)                                 \
  X(cuDeviceGetName, 2000)                             \
  X(cuDeviceGetAttribute, 2000)                        \
  X(cuDeviceTotalMem, 3020)                            \
  X(cuDevicePrimaryCtxRetain, 7000)                    \
  X(cuDevicePrimaryCtxRelease, 11000)                  \
  X(cuCtxGetCurrent, 4000)                             \
  X(cuCtxSetCurrent, 4000)                             \
  X(cuCtxGetDevice, 2000)                              \
  /* memory */                                         \
  X(cuMemGetInfo, 3020)                                \
  X(cuMemAlloc, 3020)                                  \
  X(cuMemFree, 3020)                                   \
  X(cuMemAllocAsync, 11020)                            \
  X(cuMemFreeAsync, 11020)                             \
  X(cuMemcpyAsync, 4000)                               \
  X(cuMemsetD8Async, 3020)                             \
  X(cuMemsetD16Async, 3020)                            \
  X(cuMemsetD32Async, 3020)                            \
  /* streams, capture and events */                    \
  X(cuStreamCreate, 2000)                              \
  X(cuStreamDestroy, 4000)                             \
  X(cuStreamSynchronize, 2000)                         \
  X(cuStreamQuery, 2000)                               \
  X(cuStreamGetId, 12000)                              \
  X(cuStreamGetCtx, 9020)                              \
  X(cuStreamWaitEvent, 3020)                           \
  X(cuLaunchHostFunc, 10000)                           \
  X(cuStreamIsCapturing, 10000)                        \
  X(cuStreamBeginCapture, 10010)                       \
  X(cuStreamEndCapture, 10000)                         \
  X(cuStreamGetCaptureInfo, 12030)                     \
  X(cuStreamUpdateCaptureDependencies, 12030)          \
  X(cuThreadExchangeStreamCaptureMode, 10010)          \
  X(cuEventCreate, 2000)                               \
  X(cuEventDestroy, 4000)                              \
  X(cuEventRecord, 2000)                               \
  X(cuEventQuery, 2000)                                \
  X(cuEventSynchronize, 2000)                          \
  X(cuEventElapsedTime, 2000)                          \
  /* images and kernels */                             \
  X(cuModuleLoadData, 2000)                            \
  X(cuModuleUnload, 2000)                              \
  X(cuModuleGetFunction, 2000)                         \
  X(cuModuleGetFunctionCount, 12040)                   \
  X(cuModuleEnumerateFunctions, 12040)                 \
  X(cuFuncGetParamInfo, 12040)                         \
  X(cuFuncGetAttribute, 2020)                          \
  X(cuFuncSetAttribute, 9000)                          \
  X(cuFuncGetName, 12030)                              \
  X(cuLaunchKernelEx, 11060)                           \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050) \
  X(cuOccupancyMaxActiveClusters, 11070)               \
  /* graphs */                                         \
  X(cuGraphCreate, 10000)                              \
  X(cuGraphDestroy, 10000)                             \
  X(cuGraphClone, 10000)                               \
  X(cuGraphAddKernelNode, 12000)                       \
  X(cuGraphAddMemsetNode, 10000)                       \
  X(cuGraphAddMemcpyNode, 10000)                       \
  X(cuGraphAddChildGraphNode, 10000)                   \
  X(cuGraphAddEmptyNode, 10000)                        \
  X(cuGraphAddEventRecordNode, 11010)                  \
  X(cuGraphAddDependencies, 12030)                     \
  X(cuGraphKernelNodeGetParams, 12000)                 \
  X(cuGraphKernelNodeGetAttribute, 11000)              \
  X(cuGraphKernelNodeSetAttribute, 11000)              \
  X(cuGraphChildGraphNodeGetGraph, 10000)              \
  X(cuGraphNodeGetType, 10000)                         \
  X(cuGraphNodeGetDependencies, 12030)                 \
  X(cuGraphGetNodes, 10000)                            \
  X(cuGraphGetEdges, 12030)                            \
  X(cuGraphDebugDotPrint, 11030)                       \
  X(cuGraphInstantiateWithFlags, 11040)                \
  X(cuGraphUpload, 11010)                              \
  X(cuGraphLaunch, 10000)                              \
  X(cuGraphExecDestroy, 10000)                         \
  X(cuGraphExecUpdate, 12000)                          \
  X(cuGraphExecKernelNodeSetParams, 12000)             \
  X(cuGraphExecMemsetNodeSetParams, 10020)             \
  X(cuGraphExecMemcpyNodeSetParams, 10020)             \
  X(cuGraphExecChildGraphNodeSetParams, 11010)

// The oldest driver that has every function, as cuDriverGetVersion counts: CUDA 12.4, for the sizes
// of a kernel's parameters.
inline constexpr int kMinimumDriver = 12040;
static_assert(CUDA_VERSION >= kMinimumDriver, "cuda.h of CUDA 12.4 or later is needed");

// The memory that a pointer parameter stands for.
struct Extent {
  std::string name;  // the parameter's
  const void* begin = nullptr;
  std::uint64_t bytes = 0;
  bool writable = false;
  bool unset = false;  // nothing has written it before the launch
};

// A kernel's first read of an unset extent's bytes that it had not written itself.
struct UnsetRead {
  std::string parameter;
  std::string line;  // "saxpy.cu:7"
  std::uint64_t offset = 0, bytes = 0;
  std::array<std::uint32_t, 3> block{}, thread{};
};

// cuda.h renames functions by macro (cuMemAlloc is cuMemAlloc_v2 there), so a member may carry the
// suffixed name; code that includes this header writes the plain one and means the same.
struct Driver {
  const char* name = "";  // "cuda" or "host"
  // What the kernel that failed last said, and forgets it; null where the driver cannot tell.
  std::string (*fault)() = nullptr;
  // Tells what memory the parameters of the next cuLaunchKernelEx stand for, so that accesses can
  // be held against it; null where the driver checks none. Reads of what is unset are there once
  // the kernel has run.
  void (*expect)(std::span<const Extent>, std::shared_ptr<std::vector<UnsetRead>>) = nullptr;
#define JGE_DECLARE(function, version) PFN_##function##_v##version function = nullptr;
  JGE_DRIVER_FUNCTIONS(JGE_DECLARE)
#undef JGE_DECLARE
};

}  // namespace jge

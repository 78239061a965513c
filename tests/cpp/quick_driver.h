// tests/cpp/quick_driver.h: the software driver, but for what a warm call asks: answered at once.
#pragma once

#include "driver/host_driver.h"

namespace jge::test {

// For tests and benchmarks of the core alone. What is launched does not run.
inline Driver quick_driver() {
  Driver driver = host_driver();
  driver.cuCtxGetCurrent = [](CUcontext* context) {
    static CUcontext current = [] {
      CUcontext made = nullptr;
      host_driver().cuCtxGetCurrent(&made);
      return made;
    }();
    *context = current;
    return CUDA_SUCCESS;
  };
  driver.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  driver.cuStreamGetId = [](CUstream, unsigned long long* id) {
    *id = 1;
    return CUDA_SUCCESS;
  };
  driver.cuGraphLaunch = [](CUgraphExec, CUstream) { return CUDA_SUCCESS; };
  driver.cuGraphExecKernelNodeSetParams =
      [](CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*) { return CUDA_SUCCESS; };
  return driver;
}

}  // namespace jge::test

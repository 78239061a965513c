// benchmarks/core/axpy.cc: the benchmark's one kernel, as an image of the host driver.
#include "host_kernels.h"

static void axpy(const float* x, const float* y, float* out, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}

static const JgeHostKernel kernels[] = {describe<&axpy>("axpy")};
extern "C" __attribute__((visibility("default"))) const JgeHostImage jge_host_image;
const JgeHostImage jge_host_image = {JGE_HOST_IMAGE_ABI, 1, kernels, 0};

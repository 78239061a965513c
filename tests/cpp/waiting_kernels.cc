// tests/cpp/waiting_kernels.cc: kernels whose threads wait, by the headers that stand for CUDA's.
#include <assert.h>

#include "jge_host.h"

// Twice the sum of a block, by shuffles and barriers.
extern "C" __global__ void sums(const int* in, int* out) {
  __shared__ int parts[32];
  int v = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int by = 16; by > 0; by /= 2) v += __shfl_down_sync(~0u, v, by);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x > 0) return;
  int sum = 0;
  for (unsigned i = 0; i < blockDim.x / 32; ++i) sum += parts[i];
  *static_cast<int*>(jge::dynamic_shared) = sum;
  out[blockIdx.x] = sum + jge_dynamic_shared<int>()[0];
}

// The nth thread fails while the others wait.
extern "C" __global__ void fail_behind_a_barrier(int n) {
  __syncthreads();
  assert(threadIdx.x != unsigned(n));
  __syncthreads();
}

extern "C" __global__ void wait_for_ever() {
  if (threadIdx.x < 5) {
    __syncthreads();
  } else {
    __syncwarp(~0u);
  }
}

static const JgeHostKernel kernels[] = {
    jge_row<decltype(&sums), &sums>("sums"),
    jge_row<decltype(&fail_behind_a_barrier), &fail_behind_a_barrier>("fail_behind_a_barrier"),
    jge_row<decltype(&wait_for_ever), &wait_for_ever>("wait_for_ever"),
};
const JgeHostImage jge_host_image = {JGE_HOST_IMAGE_ABI, 3, kernels, JGE_IS_CHECKED};

// tests/cpp/waiting_kernels.cc: kernels whose threads wait, by the headers that stand for CUDA's.
#include <assert.h>
#include <sched.h>

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

// Waits until the flag is up, with a stack for each thread.
extern "C" __global__ void hold(int* arrived, const int* flag) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __atomic_fetch_add(arrived, 1, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(flag, __ATOMIC_SEQ_CST)) sched_yield();
}

// Uses so many times 64 KB of stack, in thread 7.
__device__ __noinline__ int deep(int levels) {
  volatile char here[65536];
  for (int i = 0; i < 65536; i += 16) here[i] = char(levels);
  return levels > 1 ? deep(levels - 1) + here[512] : here[1024];
}
extern "C" __global__ void use_stack(int levels, int* out) {
  __syncthreads();
  const int used = threadIdx.x == 7 ? deep(levels) : 1;
  __syncthreads();
  out[threadIdx.x] = used;
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
    jge_row<decltype(&hold), &hold>("hold"),
    jge_row<decltype(&use_stack), &use_stack>("use_stack"),
    jge_row<decltype(&wait_for_ever), &wait_for_ever>("wait_for_ever"),
};
const JgeHostImage jge_host_image = {JGE_HOST_IMAGE_ABI, 5, kernels, JGE_IS_CHECKED};

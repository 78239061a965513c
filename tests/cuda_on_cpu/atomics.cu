// tests/cuda_on_cpu/atomics.cu: atomic operations, and threads that wait by them.
#include <cuda_fp16.h>
#define KERNEL extern "C" __global__ void

__device__ int here() { return blockIdx.x * blockDim.x + threadIdx.x; }

KERNEL histogram(const int* x, int* bins, int n) {
  if (here() < n) atomicAdd(&bins[x[here()] & 15], 1);
}
KERNEL histogram_in_shared_memory(const int* x, int* bins, int n) {
  __shared__ int s[16];
  if (threadIdx.x < 16) s[threadIdx.x] = 0;
  __syncthreads();
  if (here() < n) atomicAdd_block(&s[x[here()] & 15], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
KERNEL sums(float* f, double* d, unsigned int* u) {
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  atomicAdd(u, 3u);
  atomicSub(u + 1, 1u);
}
KERNEL extremes(const int* x, int* y) {
  atomicMin(&y[0], x[here()]);
  atomicMax(&y[1], x[here()]);
}
KERNEL bits(const int* x, int* y) {
  atomicOr(&y[0], x[here()]);
  atomicXor(&y[1], x[here()]);
  atomicAnd(&y[2], x[here()]);
}
KERNEL wrapping(unsigned int* y) {
  atomicInc(&y[0], 6);
  atomicDec(&y[1], 6);
}
KERNEL maximum_of_floats(const float* x, float* y) {
  int* bits = reinterpret_cast<int*>(y);
  int old = *bits, assumed;
  do {
    assumed = old;
    const float larger = fmaxf(x[here()], __int_as_float(assumed));
    old = atomicCAS(bits, assumed, __float_as_int(larger));
  } while (old != assumed);
}
KERNEL lock(int* lock, int* counter) {
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *counter += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
// Thread 0 waits for the last one, which comes later in any order.
KERNEL flag_of_another_thread(int* flag, int* y) {
  if (threadIdx.x == 0) {
    while (atomicAdd(flag, 0) == 0) {
    }
    y[0] = 7;
  } else if (threadIdx.x == blockDim.x - 1) {
    atomicExch(flag, 1);
  }
}
KERNEL last_block_finishes(const float* x, float* parts, float* y, unsigned int* arrived) {
  __shared__ bool last;
  __shared__ float s[32];
  s[threadIdx.x] = x[here()];
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < 32; ++i) sum += s[i];
    parts[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(arrived, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    for (int i = 0; i < gridDim.x; ++i) y[0] += parts[i];
  }
}
KERNEL halves(__half* y) { atomicAdd(y, __float2half(0.5f)); }

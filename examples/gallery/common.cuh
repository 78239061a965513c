// examples/gallery/common.cuh: what several kernels of the gallery share.
#pragma once
#include <cuda_bf16.h>

// What to compute in: eight bits of bfloat16 are for storing numbers, not for adding them up.
template <typename T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<__nv_bfloat16> {
  using type = float;
};
template <typename T>
using accumulator_t = typename Accumulator<T>::type;

constexpr unsigned kAllLanes = 0xffffffffu;

// The sum over a warp, in all its lanes.
template <typename A>
__device__ A warp_sum(A value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// The sum over a block of whole warps, in all its threads.
template <typename A>
__device__ A block_sum(A value) {
  __shared__ A sums[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = warp_sum(value);
  __syncthreads();  // what the last call put there has been read
  if (lane == 0) sums[warp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? sums[lane] : A(0));
}

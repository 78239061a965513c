// tests/cuda_on_cpu/warps.cu: shuffles, votes and what else the lanes of a warp do together.
#define KERNEL extern "C" __global__ void
#define ALL 0xffffffffu

KERNEL broadcast(const float* x, float* y) { y[threadIdx.x] = __shfl_sync(ALL, x[threadIdx.x], 5); }
KERNEL scan_by_shuffle(const float* x, float* y) {
  const int lane = threadIdx.x % warpSize;
  float v = x[threadIdx.x];
  for (int by = 1; by < 32; by *= 2) {
    const float left = __shfl_up_sync(ALL, v, by);
    if (lane >= by) v += left;
  }
  y[threadIdx.x] = v;
}
KERNEL sum_by_shuffle(const double* x, double* y) {
  double v = x[threadIdx.x];
  for (int by = 16; by > 0; by /= 2) v += __shfl_down_sync(ALL, v, by);
  if (threadIdx.x % 32 == 0) y[threadIdx.x / 32] = v;
}
KERNEL butterfly(const int* x, int* y) {
  int v = x[threadIdx.x];
  for (int with = 16; with > 0; with /= 2) v = max(v, __shfl_xor_sync(ALL, v, with));
  y[threadIdx.x] = v;
}
KERNEL shuffle_in_parts(const int* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x;
  y[t] = __shfl_sync(ALL, x[t], 3, 8);
  y[n + t] = __shfl_up_sync(ALL, x[t], 2, 8);
  y[2 * n + t] = __shfl_down_sync(ALL, x[t], 3, 4);
  y[3 * n + t] = __shfl_xor_sync(ALL, x[t], 5, 16);
  y[4 * n + t] = __shfl_xor_sync(ALL, x[t], 9, 8);
}
// Two halves of a warp, each with a mask of its own.
KERNEL divergent_halves(const int* x, int* y) {
  const bool low = threadIdx.x % 32 < 16;
  int v = low ? x[threadIdx.x] : 2 * x[threadIdx.x];
  if (low) {
    for (int k = 8; k > 0; k /= 2) v += __shfl_xor_sync(0x0000ffffu, v, k);
  } else {
    for (int k = 8; k > 0; k /= 2) v += __shfl_xor_sync(0xffff0000u, v, k);
  }
  y[threadIdx.x] = v;
}
// The last warp has eight lanes.
KERNEL partial_warp(const int* x, int* y) {
  int v = x[threadIdx.x];
  for (int k = 4; k > 0; k /= 2) v += __shfl_xor_sync(ALL, v, k);
  y[threadIdx.x] = v;
}
KERNEL sum_of_block(const float* x, float* y) {
  __shared__ float sums[32];
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int by = 16; by > 0; by /= 2) v += __shfl_down_sync(ALL, v, by);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x < 32) {
    v = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0;
    for (int by = 16; by > 0; by /= 2) v += __shfl_down_sync(ALL, v, by);
    if (threadIdx.x == 0) y[blockIdx.x] = v;
  }
}
KERNEL synchronized_warp(const float* x, float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  const float v = s[threadIdx.x ^ 1];
  __syncwarp();
  s[threadIdx.x] = 2 * v;
  __syncwarp(ALL);
  y[threadIdx.x] = s[threadIdx.x ^ 2];
}

KERNEL votes(const int* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x;
  y[t] = __ballot_sync(ALL, x[t] > 0);
  y[n + t] = __any_sync(ALL, x[t] == 7);
  y[2 * n + t] = __all_sync(ALL, x[t] < 7);
}
KERNEL active_lanes(const int* x, int* y) {
  y[threadIdx.x] = -1;
  if (x[threadIdx.x] > 0) y[threadIdx.x] = __popc(__activemask());
}
KERNEL matches(const int* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x;
  int all;
  y[t] = __match_any_sync(ALL, x[t]);
  y[n + t] = __match_all_sync(ALL, x[t], &all);
  y[2 * n + t] = all;
}
KERNEL reductions(const int* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x;
  y[t] = __reduce_add_sync(ALL, x[t]);
  y[n + t] = __reduce_min_sync(ALL, x[t]);
  y[2 * n + t] = __reduce_max_sync(ALL, x[t]);
  y[3 * n + t] = __reduce_and_sync(ALL, unsigned(x[t]));
  y[4 * n + t] = __reduce_or_sync(ALL, unsigned(x[t]));
  y[5 * n + t] = __reduce_xor_sync(ALL, unsigned(x[t]));
}
// One atomic operation for all lanes that want a place.
KERNEL compaction(const int* x, int* y, int* count) {
  const int lane = threadIdx.x % 32;
  const unsigned wanted = __ballot_sync(ALL, x[threadIdx.x] > 0);
  int first = 0;
  if (lane == 0) first = atomicAdd(count, __popc(wanted));
  first = __shfl_sync(ALL, first, 0);
  if (wanted >> lane & 1) y[first + __popc(wanted & ((1u << lane) - 1))] = x[threadIdx.x];
}

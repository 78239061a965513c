// tests/cuda_on_cpu/groups.cu: cooperative groups within a block.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#define KERNEL extern "C" __global__ void

namespace cg = cooperative_groups;

KERNEL block_group(const float* x, float* y) {
  __shared__ float s[64];
  const auto block = cg::this_thread_block();
  s[block.thread_rank()] = x[block.thread_rank()];
  block.sync();
  y[block.thread_rank()] = s[block.size() - 1 - block.thread_rank()] + block.group_index().x;
}
KERNEL tile_shuffles(const float* x, float* y) {
  const auto block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  float v = x[block.thread_rank()];
  for (int by = tile.size() / 2; by > 0; by /= 2) v += tile.shfl_down(v, by);
  y[block.thread_rank()] = tile.shfl(v, 0) + 100 * tile.meta_group_rank();
}
KERNEL tile_votes(const int* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x;
  const auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  y[t] = tile.ballot(x[t] > 0);
  y[n + t] = tile.any(x[t] == 7);
  y[2 * n + t] = tile.all(x[t] < 7);
  y[3 * n + t] = tile.shfl_xor(x[t], 3) + tile.shfl_up(x[t], 1);
  y[4 * n + t] = tile.match_any(x[t]);
}
KERNEL tile_reductions(const float* x, float* y) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const float v = x[threadIdx.x];
  y[threadIdx.x] =
      cg::reduce(warp, v, cg::plus<float>()) + cg::reduce(warp, v, cg::greater<float>());
}
KERNEL tile_scans(const int* x, int* y) {
  const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  y[threadIdx.x] = cg::inclusive_scan(tile, x[threadIdx.x]);
  y[blockDim.x + threadIdx.x] = cg::exclusive_scan(tile, x[threadIdx.x], cg::plus<int>());
}
KERNEL tile_of_a_tile(const int* x, int* y) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const auto four = cg::tiled_partition<4>(warp);
  y[threadIdx.x] = four.shfl(x[threadIdx.x], 1) + 1000 * four.meta_group_rank();
  warp.sync();
  four.sync();
}
KERNEL coalesced(const int* x, int* y) {
  y[threadIdx.x] = -1;
  if (x[threadIdx.x] > 0) {
    const auto active = cg::coalesced_threads();
    y[threadIdx.x] =
        active.thread_rank() + 100 * active.size() + 10000 * active.shfl(x[threadIdx.x], 0);
  }
}
KERNEL partitions(const int* x, int* y) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const auto same = cg::labeled_partition(warp, x[threadIdx.x]);
  const auto signs = cg::binary_partition(warp, x[threadIdx.x] > 0);
  y[threadIdx.x] = same.size() + 100 * signs.size();
}
KERNEL grid_ranks(int* y) {
  const auto grid = cg::this_grid();
  y[grid.thread_rank()] = grid.size() + blockIdx.x;
}

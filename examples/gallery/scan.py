"""The running sum of an array: scans in registers, warps and blocks.

The first kernel sums each tile, the same function scans these sums, and the last kernel scans each
tile, beginning with the sum of the tiles before it: two reads and one write for each element
(Sengupta, Harris, Zhang and Owens, "Scan primitives for GPU computing", Graphics Hardware 2007). In
a tile, each thread scans its own elements in registers, and the threads' sums are scanned by
shuffles.

Shows: an exchange through shared memory between the order that is good for loads and the one that
is good for computing, free of bank conflicts because a thread has an odd number of elements;
recursion in Python, which becomes more nodes of one region.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64", "bfloat16"
SMALL, LARGE = (100_000,), (1 << 25,)

BLOCK, ITEMS = 256, 7
TILE = BLOCK * ITEMS

CUDA = r"""
#include "common.cuh"

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    sums_of_tiles(const T* __restrict__ x, accumulator_t<T>* __restrict__ sums, long long n) {
  using A = accumulator_t<T>;
  const long long first = (long long)(blockIdx.x) * BLOCK * ITEMS;
  A sum = 0;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const long long i = first + k * BLOCK + threadIdx.x;
    if (i < n) sum += A(x[i]);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Lane i gets the sum of the values of lanes 0 to i.
template <typename A>
__device__ A scan_warp(A value) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const A before = __shfl_up_sync(kAllLanes, value, offset);
    if (lane >= offset) value += before;
  }
  return value;
}

// The sum of the values of all threads of the block before this one.
template <typename A>
__device__ A sum_before_thread(A value) {
  constexpr int kWarps = BLOCK / 32;
  __shared__ A up_to_warp[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const A in_warp = scan_warp(value);
  if (lane == 31) up_to_warp[warp] = in_warp;
  __syncthreads();
  if (warp == 0) {
    const A scanned = scan_warp(lane < kWarps ? up_to_warp[lane] : A(0));
    if (lane < kWarps) up_to_warp[lane] = scanned;
  }
  __syncthreads();
  const A before = __shfl_up_sync(kAllLanes, in_warp, 1);
  return (warp > 0 ? up_to_warp[warp - 1] : A(0)) + (lane > 0 ? before : A(0));
}

// up_to_tile has the sums of the tiles up to each, of which the one before this tile is needed.
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    scan_tiles(const T* __restrict__ x, const accumulator_t<T>* __restrict__ up_to_tile,
               accumulator_t<T>* __restrict__ out, long long n) {
  using A = accumulator_t<T>;
  __shared__ A tile[BLOCK * ITEMS];
  const long long first = (long long)(blockIdx.x) * BLOCK * ITEMS;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {  // a warp loads adjacent elements
    const int i = k * BLOCK + threadIdx.x;
    tile[i] = first + i < n ? A(x[first + i]) : A(0);
  }
  __syncthreads();

  A sums[ITEMS];  // of the thread's elements, which are adjacent
  A sum = 0;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) sums[k] = sum += tile[threadIdx.x * ITEMS + k];
  A before = sum_before_thread(sum);
  if (blockIdx.x > 0) before += up_to_tile[blockIdx.x - 1];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) tile[threadIdx.x * ITEMS + k] = before + sums[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int i = k * BLOCK + threadIdx.x;
    if (first + i < n) out[first + i] = tile[i];
  }
}
"""


def accumulator(dtype: jax.typing.DTypeLike) -> np.dtype:
    return jnp.promote_types(dtype, jnp.float32)


kernel = partial(
    jge.cuda_kernel,
    CUDA,
    defines={"BLOCK": BLOCK, "ITEMS": ITEMS},
    grid=lambda x: jge.cdiv(x.size, TILE),
    block=BLOCK,
    values={"n": lambda x: x.size},
)
sums_of_tiles = kernel(
    "sums_of_tiles<{x}>",
    out_shape=lambda x: jax.ShapeDtypeStruct((jge.cdiv(x.size, TILE),), accumulator(x.dtype)),
)
scan_tiles = kernel(
    "scan_tiles<{x}>",
    out_shape=lambda x: jax.ShapeDtypeStruct(x.shape, accumulator(x.dtype)),
)


@jge.graph
def scan(x: jax.Array) -> jax.Array:
    """The running sums, as ``jnp.cumsum``; of bfloat16 as float32."""

    def of(x: jax.Array) -> jax.Array:
        sums = sums_of_tiles(x)
        return scan_tiles(x, of(sums) if sums.size > 1 else sums)

    return of(x)


def reference(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x, dtype=accumulator(x.dtype))


def inputs(random: np.random.Generator, dtype: str, size: tuple[int]) -> tuple[jax.Array, ...]:
    return (jnp.asarray(random.random(size), dtype),)

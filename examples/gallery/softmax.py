"""Softmax over the last dimension: a block per row, which is read twice instead of three times.

One pass finds the largest element and the sum of exponentials, because a sum relative to a smaller
maximum can be rescaled (Milakov and Gimelshein, "Online normalizer calculation for softmax",
arXiv:1805.02867, 2018). Such pairs combine in any order: over the elements of a thread, the lanes
of a warp by shuffles, and the warps of the block through shared memory.

Shows: shuffles of a pair, sums of bfloat16 in float, and a batch as more rows
(``vmap="broadcast_all"``).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64", "bfloat16"
SMALL, LARGE = (64, 1000), (8192, 4096)  # rows, columns

softmax = jge.cuda_kernel(
    r"""
#include <cmath>

#include "common.cuh"

// The largest element so far, and the sum of exp(element - largest).
template <typename A>
struct Normalizer {
  A largest, sum;
};

// Of two that are minus infinity, the difference would be no number.
template <typename A>
__device__ A rescale(A from, A to) {
  return from == to ? A(1) : exp(from - to);
}

template <typename A>
__device__ Normalizer<A> combine(Normalizer<A> a, Normalizer<A> b) {
  const A largest = a.largest > b.largest ? a.largest : b.largest;
  return {largest, a.sum * rescale(a.largest, largest) + b.sum * rescale(b.largest, largest)};
}

template <typename A>
__device__ Normalizer<A> combine_in_warp(Normalizer<A> v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    v = combine(v, {__shfl_xor_sync(kAllLanes, v.largest, offset),
                    __shfl_xor_sync(kAllLanes, v.sum, offset)});
  }
  return v;
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    softmax(const T* __restrict__ x, T* __restrict__ y, int columns) {
  using A = accumulator_t<T>;
  constexpr int kWarps = BLOCK / 32;
  __shared__ Normalizer<A> of_warp[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Normalizer<A> nothing{A(-INFINITY), A(0)};
  x += size_t(blockIdx.x) * columns;
  y += size_t(blockIdx.x) * columns;

  Normalizer<A> v = nothing;
  for (int i = threadIdx.x; i < columns; i += BLOCK) v = combine(v, {A(x[i]), A(1)});
  v = combine_in_warp(v);
  if (lane == 0) of_warp[warp] = v;
  __syncthreads();
  v = combine_in_warp(lane < kWarps ? of_warp[lane] : nothing);

  const A factor = A(1) / v.sum;
  for (int i = threadIdx.x; i < columns; i += BLOCK) y[i] = T(exp(A(x[i]) - v.largest) * factor);
}
""",
    "softmax<{x}>",
    defines={"BLOCK": 256},
    out_shape=lambda x: x,
    grid=lambda x, columns: x.size // columns,
    block=256,
    values={"columns": lambda x: x.shape[-1]},
    reference=lambda x, **_: reference(x),
    vmap="broadcast_all",
    sharding="... _ -> ... _",
)


def reference(x: jax.Array) -> jax.Array:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return jax.nn.softmax(wide, axis=-1).astype(x.dtype)


def inputs(random: np.random.Generator, dtype: str, size: tuple[int, int]) -> tuple[jax.Array, ...]:
    return (jnp.asarray(4 * random.standard_normal(size), dtype),)

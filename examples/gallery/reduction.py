"""The sum of an array: wide loads, shuffles in each warp, two launches.

A thread adds up 16 bytes at a time with a stride of the whole grid, a warp adds up its lanes by
shuffles, the block its warps through shared memory (Harris, "Optimizing parallel reduction in
CUDA", 2007; Luitjens, "Faster parallel reductions on Kepler", 2014). A second launch adds up the
blocks' sums. Without atomic operations the order of additions is fixed: the result is the same in
every run.

Shows: loads of 16 bytes with a remainder at the end, and a function of two kernels that is one
region.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64", "bfloat16"
SMALL, LARGE = (100_000,), (1 << 25,)

BLOCK = 256
MOST_BLOCKS = 1024  # about eight for each multiprocessor of a large GPU
PER_BLOCK = 4096  # the fewest elements for a block


def accumulator(dtype: jax.typing.DTypeLike) -> np.dtype:
    return jnp.promote_types(dtype, jnp.float32)


def blocks(x: jax.ShapeDtypeStruct) -> int:
    return max(1, min(MOST_BLOCKS, jge.cdiv(x.size, PER_BLOCK)))


sums_of_blocks = jge.cuda_kernel(
    r"""
#include "common.cuh"

template <typename T>
__global__ void sums_of_blocks(const T* __restrict__ x, accumulator_t<T>* __restrict__ sums,
                               long long n) {
  using A = accumulator_t<T>;
  constexpr int kWidth = 16 / sizeof(T);
  struct alignas(16) Wide {
    T values[kWidth];
  };
  const Wide* wide = reinterpret_cast<const Wide*>(x);
  const long long first = (long long)(blockIdx.x) * blockDim.x + threadIdx.x;
  const long long threads = (long long)(gridDim.x) * blockDim.x;

  A sum = 0;
  for (long long i = first; i < n / kWidth; i += threads) {
    const Wide loaded = wide[i];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += A(loaded.values[j]);
  }
  for (long long i = n / kWidth * kWidth + first; i < n; i += threads) sum += A(x[i]);

  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
""",
    "sums_of_blocks<{x}>",
    out_shape=lambda x: jax.ShapeDtypeStruct((blocks(x),), accumulator(x.dtype)),
    grid=blocks,
    block=BLOCK,
    values={"n": lambda x: x.size},
)


@jge.graph
def reduction(x: jax.Array) -> jax.Array:
    """The sum of all elements, of bfloat16 as float32."""
    sums = sums_of_blocks(x)
    return sums[0] if sums.size == 1 else sums_of_blocks(sums)[0]


def reference(x: jax.Array) -> jax.Array:
    return jnp.sum(x, dtype=accumulator(x.dtype))


def inputs(random: np.random.Generator, dtype: str, size: tuple[int]) -> tuple[jax.Array, ...]:
    return (jnp.asarray(random.random(size), dtype),)

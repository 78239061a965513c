"""A histogram: each block counts in shared memory, and adds its counts to the result.

Atomic operations in shared memory are fast, and each block has bins of its own, so few threads use
the same one at once; only ``bins`` additions per block go to global memory (Podlozhnyuk, "Histogram
calculation in CUDA", 2007). Bins are those of ``numpy.histogram``: of equal width, the last one
closed on both sides; elements outside, and nan, are not counted.

Shows: dynamic shared memory whose size follows from a keyword, ``atomicAdd`` into an output that
begins at zero (``zero_init=``).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64", "bfloat16"
SMALL, LARGE = (100_000,), (1 << 25,)

BLOCK = 256
MOST_BLOCKS = 512  # each costs a round of additions to global memory
LOW, HIGH, BINS = -4.0, 4.0, 100

count = jge.cuda_kernel(
    r"""
#include "common.cuh"

template <typename T>
__global__ void histogram(const T* __restrict__ x, int* __restrict__ counts, double low,
                          double high, int bins, long long n) {
  using A = accumulator_t<T>;
  const A lowest = A(low), highest = A(high), per_unit = A(bins / (high - low));
  extern __shared__ int of_block[];
  for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) of_block[bin] = 0;
  __syncthreads();

  const long long threads = (long long)(gridDim.x) * blockDim.x;
  for (long long i = (long long)(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += threads) {
    const A value = A(x[i]);
    if (value >= lowest && value <= highest) {
      atomicAdd(&of_block[min(int((value - lowest) * per_unit), bins - 1)], 1);
    }
  }
  __syncthreads();

  for (int bin = threadIdx.x; bin < bins; bin += blockDim.x) {
    if (of_block[bin] > 0) atomicAdd(&counts[bin], of_block[bin]);
  }
}
""",
    "histogram<{x}>",
    out_shape=lambda bins: jax.ShapeDtypeStruct((bins,), jnp.int32),
    grid=lambda x: min(MOST_BLOCKS, jge.cdiv(x.size, 8 * BLOCK)),
    block=BLOCK,
    shared_mem=lambda bins: 4 * bins,
    values={"n": lambda x: x.size},
    zero_init=("counts",),
)


def histogram(x: jax.Array) -> jax.Array:
    """The number of elements in each of ``BINS`` bins between ``LOW`` and ``HIGH``: int32."""
    return count(x, low=LOW, high=HIGH, bins=BINS)


def reference(x: jax.Array) -> jax.Array:
    x = x.ravel().astype(jnp.promote_types(x.dtype, jnp.float32))
    bin = jnp.minimum(((x - LOW) * (BINS / (HIGH - LOW))).astype(jnp.int32), BINS - 1)
    bin = jnp.where((x >= LOW) & (x <= HIGH), bin, BINS)
    return jnp.zeros(BINS, jnp.int32).at[bin].add(1, mode="drop")


def inputs(random: np.random.Generator, dtype: str, size: tuple[int]) -> tuple[jax.Array, ...]:
    x = 2 * random.standard_normal(size)  # one in twenty outside
    x.flat[:4] = LOW, HIGH, np.nan, np.inf
    return (jnp.asarray(x, dtype),)

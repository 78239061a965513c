"""A sparse matrix times a vector, of compressed rows: some lanes of a warp for each row.

Adjacent lanes read adjacent entries, and shuffles add their sums (Bell and Garland, "Implementing
sparse matrix-vector multiplication on throughput-oriented processors", SC 2009). The best number of
lanes depends on the mean number of entries in a row: 2 to 32.

Shows: one template for several widths, chosen by shapes when the call is traced; shuffles within
parts of a warp; rows of very different length, and empty ones.
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64", "bfloat16"
SMALL, LARGE = (3000, 3000, 10), (1 << 20, 1 << 20, 24)  # rows, columns, entries in a row

BLOCK = 256

CUDA = r"""
#include "common.cuh"

template <int kLanes, typename T>
__global__ void csr_matvec(const T* __restrict__ values, const int* __restrict__ columns,
                           const int* __restrict__ starts, const T* __restrict__ x,
                           T* __restrict__ y, int rows) {
  using A = accumulator_t<T>;
  const int lane = threadIdx.x % kLanes;
  const int row = blockIdx.x * (blockDim.x / kLanes) + threadIdx.x / kLanes;
  A sum = 0;
  if (row < rows) {
    const int end = starts[row + 1];
    for (int i = starts[row] + lane; i < end; i += kLanes) sum += A(values[i]) * A(x[columns[i]]);
  }
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {  // all lanes of the warp take part
    sum += __shfl_xor_sync(kAllLanes, sum, offset);
  }
  if (row < rows && lane == 0) y[row] = T(sum);
}
"""


@cache
def kernel(lanes: int) -> jge.CudaKernel:
    return jge.cuda_kernel(
        CUDA,
        f"csr_matvec<{lanes}, {{values}}>",
        out_shape=lambda values, rows: jax.ShapeDtypeStruct((rows,), values.dtype),
        grid=lambda rows: jge.cdiv(rows, BLOCK // lanes),
        block=BLOCK,
        values={"rows": lambda starts: starts.size - 1},
    )


def csr_matvec(values: jax.Array, columns: jax.Array, starts: jax.Array, x: jax.Array) -> jax.Array:
    """The product of a matrix and x.

    Args:
        values: the entries, row by row.
        columns: int32, the column of each.
        starts: int32, the first entry of each row, and last the number of entries.
        x: a vector of the entries' dtype.
    """
    mean = values.size / max(1, starts.size - 1)
    lanes = next((lanes for lanes in (2, 4, 8, 16) if lanes >= mean), 32)
    return kernel(lanes)(values, columns, starts, x)


def reference(values: jax.Array, columns: jax.Array, starts: jax.Array, x: jax.Array) -> jax.Array:
    wide = jnp.promote_types(values.dtype, jnp.float32)
    rows = starts.size - 1
    row = jnp.repeat(jnp.arange(rows), jnp.diff(starts), total_repeat_length=values.size)
    products = values.astype(wide) * x[columns].astype(wide)
    return jax.ops.segment_sum(products, row, rows, indices_are_sorted=True).astype(values.dtype)


def inputs(
    random: np.random.Generator, dtype: str, size: tuple[int, int, int]
) -> tuple[jax.Array, ...]:
    """A matrix with rows of very different numbers of entries, some empty."""
    rows, columns, mean = size
    counts = random.geometric(1 / (mean + 1), rows) - 1
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return (
        jnp.asarray(random.standard_normal(starts[-1]), dtype),
        jnp.asarray(random.integers(0, columns, starts[-1]), jnp.int32),
        jnp.asarray(starts),
        jnp.asarray(random.standard_normal(columns), dtype),
    )

"""The transpose of a matrix, through tiles in shared memory.

A warp reads a row of a tile and writes a row of the transposed one, so both are adjacent in memory;
the turn is made in shared memory. The tile has 33 columns, because with 32 all elements of a column
would be in the same bank (Ruetsch and Micikevicius, "Optimizing matrix transpose in CUDA", 2009).

Shows: padding against bank conflicts, a kernel for elements of any size, and a batch as the z axis
of the grid (``vmap="broadcast_all"``).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64", "bfloat16"
SMALL, LARGE = (300, 500), (8192, 8192)

TILE, ROWS = 32, 8  # a thread moves TILE / ROWS elements

turn = jge.cuda_kernel(
    r"""
template <typename T>
__global__ void transpose(const T* __restrict__ x, T* __restrict__ out, int rows, int columns) {
  __shared__ T tile[TILE][TILE + 1];
  const size_t matrix = size_t(blockIdx.z) * rows * columns;
  const int left = blockIdx.x * TILE, top = blockIdx.y * TILE;

  for (int j = threadIdx.y; j < TILE; j += ROWS) {
    const int row = top + j, column = left + threadIdx.x;
    if (row < rows && column < columns) {
      tile[j][threadIdx.x] = x[matrix + size_t(row) * columns + column];
    }
  }
  __syncthreads();
  for (int j = threadIdx.y; j < TILE; j += ROWS) {
    const int row = left + j, column = top + threadIdx.x;  // of the result
    if (row < columns && column < rows) {
      out[matrix + size_t(row) * rows + column] = tile[threadIdx.x][j];
    }
  }
}
""",
    "transpose<{x}>",
    defines={"TILE": TILE, "ROWS": ROWS},
    out_shape=lambda x: jax.ShapeDtypeStruct((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype),
    grid=lambda x, rows, columns: (
        jge.cdiv(columns, TILE),
        jge.cdiv(rows, TILE),
        x.size // (rows * columns),
    ),
    block=(TILE, ROWS),
    reference=lambda x, rows, columns: reference(x),
    vmap="broadcast_all",
)


def transpose(x: jax.Array) -> jax.Array:
    """The transpose: (rows, columns) -> (columns, rows)."""
    return turn(x, rows=x.shape[0], columns=x.shape[1])


def reference(x: jax.Array) -> jax.Array:
    return x.T


def inputs(random: np.random.Generator, dtype: str, size: tuple[int, int]) -> tuple[jax.Array, ...]:
    return (jnp.asarray(random.standard_normal(size), dtype),)

"""The product of two matrices, in tiles: shared memory for the block, registers for the thread.

A block makes a tile of the result. It walks along the inner dimension with a strip of each factor
in shared memory, so that each element is loaded from global memory once per block and not once per
thread; a thread keeps a patch of the result in registers, so that each element it reads from shared
memory is used several times (Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra",
SC 2008). It uses CUDA cores; cuBLAS, which ``@`` calls, uses tensor cores.

Shows: register tiling, sums of bfloat16 in float, edges that are filled with zeros.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64", "bfloat16"
SMALL, LARGE = (150, 200, 250), (4096, 4096, 4096)  # m, n, k

TILE, STRIP, THREADS = 64, 16, 16  # a thread makes TILE / THREADS squared elements

product = jge.cuda_kernel(
    r"""
#include "common.cuh"

constexpr int kThreads = THREADS * THREADS;

template <typename T>
__global__ void __launch_bounds__(kThreads) matmul(const T* __restrict__ a, const T* __restrict__ b,
                                                   T* __restrict__ c, int m, int n, int k) {
  using A = accumulator_t<T>;
  constexpr int kPatch = TILE / THREADS;
  __shared__ A strip_a[STRIP][TILE + 2];  // transposed; a warp writes 16 x 2 elements to 32 banks
  __shared__ A strip_b[STRIP][TILE];
  const int thread = threadIdx.y * THREADS + threadIdx.x;
  const int top = blockIdx.y * TILE, left = blockIdx.x * TILE;

  A sums[kPatch][kPatch] = {};
  for (int inner = 0; inner < k; inner += STRIP) {
    for (int i = thread; i < TILE * STRIP; i += kThreads) {
      // Neighbouring threads load neighbouring elements of a row, of either factor.
      const int row = top + i / STRIP, of_row = inner + i % STRIP;
      strip_a[i % STRIP][i / STRIP] = row < m && of_row < k ? A(a[size_t(row) * k + of_row]) : A(0);
      const int of_column = inner + i / TILE, column = left + i % TILE;
      strip_b[i / TILE][i % TILE] =
          of_column < k && column < n ? A(b[size_t(of_column) * n + column]) : A(0);
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < STRIP; ++s) {
      A column[kPatch], row[kPatch];
#pragma unroll
      for (int i = 0; i < kPatch; ++i) {
        column[i] = strip_a[s][threadIdx.y + i * THREADS];
        row[i] = strip_b[s][threadIdx.x + i * THREADS];
      }
#pragma unroll
      for (int i = 0; i < kPatch; ++i) {
#pragma unroll
        for (int j = 0; j < kPatch; ++j) sums[i][j] += column[i] * row[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPatch; ++i) {
#pragma unroll
    for (int j = 0; j < kPatch; ++j) {
      const int row = top + threadIdx.y + i * THREADS, column = left + threadIdx.x + j * THREADS;
      if (row < m && column < n) c[size_t(row) * n + column] = T(sums[i][j]);
    }
  }
}
""",
    "matmul<{a}>",
    defines={"TILE": TILE, "STRIP": STRIP, "THREADS": THREADS},
    out_shape=lambda a, b: jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype),
    grid=lambda a, b, m, n, k: (jge.cdiv(n, TILE), jge.cdiv(m, TILE)),
    block=(THREADS, THREADS),
    reference=lambda a, b, **_: reference(a, b),
)


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """(m, k), (k, n) -> (m, n), all of one dtype."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul: {a.shape} and {b.shape} have no product")
    return product(a, b, m=a.shape[0], n=b.shape[1], k=a.shape[1])


def reference(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")  # float32, and not TF32


def inputs(
    random: np.random.Generator, dtype: str, size: tuple[int, int, int]
) -> tuple[jax.Array, ...]:
    m, n, k = size
    return tuple(jnp.asarray(random.standard_normal(s), dtype) for s in ((m, k), (k, n)))

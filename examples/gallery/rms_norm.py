r"""RMS normalization with its derivative by hand.

    y = x r w,   r = (mean(x^2) + epsilon)^(-1/2)

over the last dimension (Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019),
and for a cotangent g of y

    dx = r (g w - x r^2 mean(g w x)),   dw = sum over the rows of g x r.

The backward pass reads x for the mean of g w x over the row, so it computes the mean of x^2 as well
and keeps nothing but the inputs. A block does several rows; each thread keeps to
its columns, so it adds to its own place in the block's row of dw, and a second kernel adds these
rows up, in a fixed order and without atomic operations.

Shows: ``defvjp`` with kernels on both sides, which ``jge.testing.check_kernel`` holds against
finite differences and the reference; two outputs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64", "bfloat16"
SMALL, LARGE = (64, 1000), (8192, 4096)  # rows, columns

BLOCK = 256
EPSILON = 1e-6
MOST_PARTS = 512  # rows of dw that are added up last

CUDA = r"""
#include "common.cuh"

template <typename T>
__global__ void __launch_bounds__(BLOCK) rms_norm(const T* __restrict__ x, const T* __restrict__ w,
                                                  T* __restrict__ y, double epsilon, int columns) {
  using A = accumulator_t<T>;
  x += size_t(blockIdx.x) * columns;
  y += size_t(blockIdx.x) * columns;
  A squares = 0;
  for (int i = threadIdx.x; i < columns; i += BLOCK) squares += A(x[i]) * A(x[i]);
  const A r = rsqrt(block_sum(squares) / columns + A(epsilon));
  for (int i = threadIdx.x; i < columns; i += BLOCK) y[i] = T(A(x[i]) * r * A(w[i]));
}

template <typename T>
__global__ void __launch_bounds__(BLOCK)
    rms_norm_backward(const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ g,
                      T* __restrict__ dx, accumulator_t<T>* __restrict__ parts, double epsilon,
                      int columns, int rows) {
  using A = accumulator_t<T>;
  A* part = parts + size_t(blockIdx.x) * columns;
  for (int i = threadIdx.x; i < columns; i += BLOCK) part[i] = 0;
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    const size_t first = size_t(row) * columns;
    A squares = 0, products = 0;
    for (int i = threadIdx.x; i < columns; i += BLOCK) {
      const A u = A(x[first + i]);
      squares += u * u;
      products += A(g[first + i]) * A(w[i]) * u;
    }
    const A r = rsqrt(block_sum(squares) / columns + A(epsilon));
    const A back = block_sum(products) / columns * r * r;
    for (int i = threadIdx.x; i < columns; i += BLOCK) {
      const A u = A(x[first + i]), v = A(g[first + i]);
      dx[first + i] = T(r * (v * A(w[i]) - u * back));
      part[i] += v * u * r;
    }
  }
}

// A thread per column; neighbouring threads read neighbouring elements.
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    sum_rows(const accumulator_t<T>* __restrict__ parts, const T* __restrict__ like,
             T* __restrict__ sums, int columns, int rows) {
  const int column = blockIdx.x * BLOCK + threadIdx.x;
  if (column >= columns) return;
  accumulator_t<T> sum = 0;
  for (int row = 0; row < rows; ++row) sum += parts[size_t(row) * columns + column];
  sums[column] = T(sum);
}
"""


def reference(x: jax.Array, w: jax.Array, epsilon: float = EPSILON, **_: Any) -> jax.Array:
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    r = jax.lax.rsqrt(jnp.mean(wide**2, axis=-1, keepdims=True) + epsilon)
    return (wide * r * w).astype(x.dtype)


def rows_of(x: jax.ShapeDtypeStruct) -> int:
    return x.size // x.shape[-1]


def parts_of(x: jax.ShapeDtypeStruct) -> int:
    return min(MOST_PARTS, rows_of(x))


kernel = partial(jge.cuda_kernel, CUDA, defines={"BLOCK": BLOCK}, block=BLOCK)
rms_norm = kernel(
    "rms_norm<{x}>",
    out_shape=lambda x: x,
    grid=rows_of,
    values={"columns": lambda x: x.shape[-1], "epsilon": EPSILON},
    reference=reference,
)
backward = kernel(
    "rms_norm_backward<{x}>",
    out_shape=lambda x: (
        x,
        jax.ShapeDtypeStruct((parts_of(x), x.shape[-1]), jnp.promote_types(x.dtype, jnp.float32)),
    ),
    grid=parts_of,
    values={"columns": lambda x: x.shape[-1], "rows": rows_of},
)
sum_rows = kernel(
    "sum_rows<{like}>",
    out_shape=lambda like: like,
    grid=lambda parts: jge.cdiv(parts.shape[1], BLOCK),
    values={
        "columns": lambda parts: parts.shape[1],
        "rows": lambda parts: parts.shape[0],
    },
)


def rms_norm_fwd(x: jax.Array, w: jax.Array, *, epsilon: float, **_: Any) -> Any:
    return rms_norm(x, w, epsilon=epsilon), (x, w)


def rms_norm_bwd(inputs: Any, g: jax.Array, *, epsilon: float, **_: Any) -> Any:
    x, w = inputs
    dx, parts = backward(x, w, g, epsilon=epsilon)
    return dx, sum_rows(parts, w)


rms_norm.defvjp(rms_norm_fwd, rms_norm_bwd)


def inputs(random: np.random.Generator, dtype: str, size: tuple[int, int]) -> tuple[jax.Array, ...]:
    return tuple(jnp.asarray(random.standard_normal(s), dtype) for s in (size, size[-1:]))

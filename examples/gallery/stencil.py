"""The Laplacian in three dimensions, to eighth order: 25 points from shared memory and registers.

A block walks through planes. Its current plane lies in shared memory, with a halo of four points on
each side; of the planes in front and behind, a thread needs only the points in line with its own,
which it keeps in registers and shifts (Micikevicius, "3D finite difference computation on GPUs
using CUDA", GPGPU-2, 2009). So nearly every element is read once.

Shows: a halo in shared memory, a queue in registers, and a derivative by hand: the operator, with
zeros outside, is its own transpose.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64", "bfloat16"
SMALL, LARGE = (20, 50, 70), (256, 512, 512)  # depth, height, width

WIDTH, HEIGHT, DEPTH = 32, 8, 32  # of what a block does
WEIGHTS = -205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560  # of points at a distance of 0 to 4

stencil = jge.cuda_kernel(
    r"""
#include "common.cuh"

constexpr int kRadius = 4, kThreads = WIDTH * HEIGHT;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    laplacian(const T* __restrict__ u, T* __restrict__ out, int width, int height, int depth) {
  using A = accumulator_t<T>;
  constexpr A weights[] = {A(-205 / 72.0), A(8 / 5.0), A(-1 / 5.0), A(8 / 315.0), A(-1 / 560.0)};
  __shared__ A plane[HEIGHT + 2 * kRadius][WIDTH + 2 * kRadius];
  const int x = blockIdx.x * WIDTH + threadIdx.x, y = blockIdx.y * HEIGHT + threadIdx.y;
  const int i = threadIdx.x + kRadius, j = threadIdx.y + kRadius;  // where that is in the plane
  const int front = blockIdx.z * DEPTH, back = min(front + DEPTH, depth);

  const auto at = [&](int x, int y, int z) {
    const bool inside = x >= 0 && x < width && y >= 0 && y < height && z >= 0 && z < depth;
    return inside ? A(u[(size_t(z) * height + y) * width + x]) : A(0);
  };

  A queue[2 * kRadius + 1];  // along z, the thread's own point in the middle
#pragma unroll
  for (int k = 1; k <= 2 * kRadius; ++k) queue[k] = at(x, y, front - kRadius + k - 1);

  for (int z = front; z < back; ++z) {
#pragma unroll
    for (int k = 0; k < 2 * kRadius; ++k) queue[k] = queue[k + 1];
    queue[2 * kRadius] = at(x, y, z + kRadius);

    __syncthreads();  // all are done with the last plane
    plane[j][i] = queue[kRadius];
    if (threadIdx.x < kRadius) {
      plane[j][i - kRadius] = at(x - kRadius, y, z);
      plane[j][i + WIDTH] = at(x + WIDTH, y, z);
    }
    if (threadIdx.y < kRadius) {
      plane[j - kRadius][i] = at(x, y - kRadius, z);
      plane[j + HEIGHT][i] = at(x, y + HEIGHT, z);
    }
    __syncthreads();

    A sum = 3 * weights[0] * queue[kRadius];
#pragma unroll
    for (int r = 1; r <= kRadius; ++r) {
      sum += weights[r] * (plane[j][i - r] + plane[j][i + r] + plane[j - r][i] + plane[j + r][i] +
                           queue[kRadius - r] + queue[kRadius + r]);
    }
    if (x < width && y < height) out[(size_t(z) * height + y) * width + x] = T(sum);
  }
}
""",
    "laplacian<{u}>",
    defines={"WIDTH": WIDTH, "HEIGHT": HEIGHT, "DEPTH": DEPTH},
    out_shape=lambda u: u,
    grid=lambda u: tuple(map(jge.cdiv, u.shape[::-1], (WIDTH, HEIGHT, DEPTH))),
    block=(WIDTH, HEIGHT),
    values={
        "width": lambda u: u.shape[2],
        "height": lambda u: u.shape[1],
        "depth": lambda u: u.shape[0],
    },
    reference=lambda u, **_: reference(u),
)
stencil.defvjp(lambda u, **_: (stencil(u), None), lambda _, g, **__: (stencil(g),))


def reference(u: jax.Array) -> jax.Array:
    wide = u.astype(jnp.promote_types(u.dtype, jnp.float32))
    padded = jnp.pad(wide, 4)

    def shifted(axis: int, by: int) -> jax.Array:
        starts = [4 + by * (a == axis) for a in range(3)]
        return jax.lax.dynamic_slice(padded, starts, u.shape)

    total = 3 * WEIGHTS[0] * wide
    for axis in range(3):
        for r in range(1, 5):
            total += WEIGHTS[r] * (shifted(axis, -r) + shifted(axis, r))
    return total.astype(u.dtype)


def inputs(
    random: np.random.Generator, dtype: str, size: tuple[int, int, int]
) -> tuple[jax.Array, ...]:
    return (jnp.asarray(random.standard_normal(size), dtype),)

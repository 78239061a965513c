"""Gravity between all pairs of bodies, by tiles in shared memory.

A block loads a tile of bodies, and each of its threads adds up their pull on its own body; so a
body is loaded from global memory once per block (Nyland, Harris and Prins, "Fast N-body simulation
with CUDA", GPU Gems 3, chapter 31, 2007). The last tile is filled with bodies without mass, which
need no test in the inner loop.

Shows: a struct of four numbers as one wide load, a kernel that is bound by arithmetic.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64"
SMALL, LARGE = (1000,), (1 << 15,)

BLOCK = 256
SOFTENING = 0.05  # a distance that keeps the force of colliding bodies finite

accelerations = jge.cuda_kernel(
    r"""
template <typename T>
struct alignas(16) Body {
  T x, y, z, mass;
};

// bodies: (n, 4), a Body each. out: (n, 3).
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    accelerations(const T* __restrict__ bodies, T* __restrict__ out, T softening, int n) {
  __shared__ Body<T> tile[BLOCK];
  const Body<T>* all = reinterpret_cast<const Body<T>*>(bodies);
  const int me = blockIdx.x * BLOCK + threadIdx.x;
  const Body<T> own = me < n ? all[me] : Body<T>{};
  T x = 0, y = 0, z = 0;
  for (int first = 0; first < n; first += BLOCK) {
    const int i = first + threadIdx.x;
    tile[threadIdx.x] = i < n ? all[i] : Body<T>{};
    __syncthreads();
    // A tile is summed apart, so that a sum of n terms is not rounded n times.
    T tile_x = 0, tile_y = 0, tile_z = 0;
#pragma unroll 8
    for (int k = 0; k < BLOCK; ++k) {
      const Body<T> other = tile[k];
      const T dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
      const T r = rsqrt(dx * dx + dy * dy + dz * dz + softening * softening);
      const T pull = other.mass * r * r * r;
      tile_x += pull * dx;
      tile_y += pull * dy;
      tile_z += pull * dz;
    }
    x += tile_x;
    y += tile_y;
    z += tile_z;
    __syncthreads();
  }
  if (me < n) {
    out[3 * size_t(me)] = x;
    out[3 * size_t(me) + 1] = y;
    out[3 * size_t(me) + 2] = z;
  }
}
""",
    "accelerations<{bodies}>",
    defines={"BLOCK": BLOCK},
    out_shape=lambda bodies: jax.ShapeDtypeStruct((bodies.shape[0], 3), bodies.dtype),
    grid=lambda bodies: jge.cdiv(bodies.shape[0], BLOCK),
    block=BLOCK,
    values={"n": lambda bodies: bodies.shape[0]},
)


def n_body(bodies: jax.Array) -> jax.Array:
    """The accelerations (n, 3) of bodies (n, 4), place and mass; the constant of gravity is 1."""
    return accelerations(bodies, softening=SOFTENING)


def reference(bodies: jax.Array) -> jax.Array:
    places, masses = bodies[:, :3], bodies[:, 3]

    def of(place: jax.Array) -> jax.Array:
        d = places - place
        pull = masses * (jnp.sum(d**2, axis=1) + SOFTENING**2) ** -1.5
        return jnp.matmul(pull, d, precision="highest")  # float32, and not TF32

    return jax.lax.map(of, places, batch_size=256)


def inputs(random: np.random.Generator, dtype: str, size: tuple[int]) -> tuple[jax.Array, ...]:
    return (jnp.asarray(random.random((*size, 4)), dtype),)

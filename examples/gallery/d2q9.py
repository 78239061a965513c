"""Flow in two dimensions by the lattice Boltzmann method: D2Q9, BGK, pull.

A step fetches the nine populations of a cell from its neighbours, lets them collide, and writes
them: one read and one write of each, side by side, since populations are planes (Wellein, Zeiser,
Hager and Donath, "On the single processor performance of simple lattice Boltzmann kernels",
Computers and Fluids 35, 2006; Krueger et al., "The lattice Boltzmann method", Springer 2017). Where
a neighbour is solid, the cell's own population comes back (half-way bounce-back). The domain is
periodic.

Shows: constants that the compiler unrolls away, and a number of steps as one region.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64"
SMALL, LARGE = (50, 70), (2048, 2048)  # height, width

BLOCK = (64, 4)
OMEGA = 1.2  # the inverse of the relaxation time
STEPS = 10
# Of each of nine populations: x, y; the opposite one; its share of a fluid at rest.
VELOCITIES = np.array(
    [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
)
OPPOSITE = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
WEIGHTS = np.array([4 / 9, *[1 / 9] * 4, *[1 / 36] * 4])

step = jge.cuda_kernel(
    r"""
template <typename T>
__global__ void step(const T* __restrict__ f, const bool* __restrict__ solid, T* __restrict__ next,
                     T omega, int width, int height) {
  constexpr int kX[] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, kY[] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
  constexpr int kOpposite[] = {0, 3, 4, 1, 2, 7, 8, 5, 6};
  constexpr T kWeights[] = {T(4) / 9,  T(1) / 9,  T(1) / 9,  T(1) / 9, T(1) / 9,
                            T(1) / 36, T(1) / 36, T(1) / 36, T(1) / 36};
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const size_t cells = size_t(width) * height, here = size_t(y) * width + x;
  if (solid[here]) {
#pragma unroll
    for (int q = 0; q < 9; ++q) next[q * cells + here] = f[q * cells + here];
    return;
  }

  // The neighbours, of which those of the last cell are the first again.
  const int left = x > 0 ? x - 1 : width - 1, right = x + 1 < width ? x + 1 : 0;
  const int below = y > 0 ? y - 1 : height - 1, above = y + 1 < height ? y + 1 : 0;
  T arrived[9], density = 0, along_x = 0, along_y = 0;
#pragma unroll
  for (int q = 0; q < 9; ++q) {
    const int from_x = kX[q] > 0 ? left : kX[q] < 0 ? right : x;
    const int from_y = kY[q] > 0 ? below : kY[q] < 0 ? above : y;
    const size_t there = size_t(from_y) * width + from_x;
    arrived[q] = solid[there] ? f[kOpposite[q] * cells + here] : f[q * cells + there];
    density += arrived[q];
    along_x += kX[q] * arrived[q];
    along_y += kY[q] * arrived[q];
  }
  const T u = along_x / density, v = along_y / density;
  const T squared = T(1.5) * (u * u + v * v);
#pragma unroll
  for (int q = 0; q < 9; ++q) {
    const T along = 3 * (kX[q] * u + kY[q] * v);
    const T equilibrium = kWeights[q] * density * (1 + along + along * along / 2 - squared);
    next[q * cells + here] = arrived[q] + omega * (equilibrium - arrived[q]);
  }
}
""",
    "step<{f}>",
    out_shape=lambda f: f,
    grid=lambda f: (jge.cdiv(f.shape[2], BLOCK[0]), jge.cdiv(f.shape[1], BLOCK[1])),
    block=BLOCK,
    values={
        "width": lambda f: f.shape[2],
        "height": lambda f: f.shape[1],
    },
)


@jge.graph
def d2q9(f: jax.Array, solid: jax.Array) -> jax.Array:
    """Populations (9, height, width) after ``STEPS`` steps; solid is a bool for each cell."""
    return jax.lax.fori_loop(0, STEPS, lambda _, f: step(f, solid, omega=OMEGA), f)


contract = partial(jnp.einsum, precision="highest")  # float32, and not TF32


def equilibrium(density: jax.Array, velocity: jax.Array) -> jax.Array:
    """The populations at a density (height, width) and a velocity (2, height, width)."""
    along = 3 * contract("qd,dyx->qyx", VELOCITIES.astype(velocity.dtype), velocity)
    squared = 1.5 * jnp.sum(velocity**2, axis=0)
    weights = WEIGHTS.astype(velocity.dtype)[:, None, None]
    return weights * density * (1 + along + along**2 / 2 - squared)


def reference(f: jax.Array, solid: jax.Array) -> jax.Array:
    height, width = solid.shape
    from_x, from_y = VELOCITIES.T[..., None, None]
    row, column = jnp.arange(height)[:, None], jnp.arange(width)
    there = (row - from_y) % height, (column - from_x) % width
    population = np.arange(9)[:, None, None]

    def step(_: int, f: jax.Array) -> jax.Array:
        arrived = jnp.where(solid[there], f[OPPOSITE], f[population, *there])
        density = jnp.sum(arrived, axis=0)
        momentum = contract("qd,qyx->dyx", VELOCITIES.astype(f.dtype), arrived)
        to = equilibrium(density, momentum / density)
        return jnp.where(solid, f, arrived + OMEGA * (to - arrived))

    return jax.lax.fori_loop(0, STEPS, step, f)


def inputs(random: np.random.Generator, dtype: str, size: tuple[int, int]) -> tuple[jax.Array, ...]:
    """A wavy flow around stones."""
    solid = random.random(size) < 0.05
    density = jnp.asarray(1 + 0.02 * random.standard_normal(size), dtype)
    velocity = jnp.asarray(0.05 * random.standard_normal((2, *size)), dtype)
    return jax.jit(equilibrium)(density, velocity), jnp.asarray(solid)

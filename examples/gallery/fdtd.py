"""Electromagnetic waves in two dimensions: Yee's finite differences in time, for E along z.

The magnetic field is sampled between the points of the electric one, in space and in time. Each is
updated in place from the differences of the other (Yee, IEEE Transactions on Antennas and
Propagation 14, 1966; Taflove and Hagness, "Computational electrodynamics", 3rd edition, 2005). The
walls conduct perfectly: E stays 0 there. A source in the middle switches on as a smooth pulse.

Shows: arrays that are updated in place (``"inout"``), and time steps as one region, in which the
loop's counter is a number for the kernel.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

DTYPES = "float32", "float64"
SMALL, LARGE = (50, 70), (2048, 2048)  # height, width

BLOCK = (32, 8)
COURANT = 0.7  # the speed of light, in cells per step; stable up to 1 / sqrt(2)
STEPS = 30
DELAY, WIDTH = 12.0, 4.0  # of the pulse, in steps

CUDA = r"""
// hx lies below a point of e and hy right of it, half a cell away; the fields are scaled so that
// one number couples them.
template <typename T>
__global__ void update_h(T* __restrict__ hx, T* __restrict__ hy, const T* __restrict__ e, T courant,
                         int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const size_t i = size_t(y) * width + x;
  if (y + 1 < height) hx[i] -= courant * (e[i + width] - e[i]);
  if (x + 1 < width) hy[i] += courant * (e[i + 1] - e[i]);
}

template <typename T>
__global__ void update_e(T* __restrict__ e, const T* __restrict__ hx, const T* __restrict__ hy,
                         const T* __restrict__ permittivity, T courant, T delay, T duration,
                         int step, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < 1 || x >= width - 1 || y < 1 || y >= height - 1) return;  // the walls stay at 0
  const size_t i = size_t(y) * width + x;
  T change = courant / permittivity[i] * ((hy[i] - hy[i - 1]) - (hx[i] - hx[i - width]));
  if (x == width / 2 && y == height / 2) {
    const T time = (T(step) - delay) / duration;
    change += exp(-time * time);
  }
  e[i] += change;
}
"""


def grid(field: jax.ShapeDtypeStruct, *_: object, **__: object) -> tuple[int, int]:
    return jge.cdiv(field.shape[1], BLOCK[0]), jge.cdiv(field.shape[0], BLOCK[1])


kernel = partial(
    jge.cuda_kernel,
    CUDA,
    grid=grid,
    block=BLOCK,
    values={
        "width": lambda field, *_, **__: field.shape[1],
        "height": lambda field, *_, **__: field.shape[0],
    },
)
update_h = kernel("update_h<{e}>", params={"hx": "inout", "hy": "inout"})
update_e = kernel("update_e<{e}>", params={"e": "inout"})


@jge.graph
def fdtd(
    e: jax.Array, hx: jax.Array, hy: jax.Array, permittivity: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The fields (height, width) after ``STEPS`` steps."""

    def step(i: jax.Array, fields: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        e, hx, hy = fields
        hx, hy = update_h(hx, hy, e, courant=COURANT)
        pulse = {"delay": DELAY, "duration": WIDTH, "step": i}
        return update_e(e, hx, hy, permittivity, courant=COURANT, **pulse), hx, hy

    return jax.lax.fori_loop(0, STEPS, step, (e, hx, hy))


def reference(
    e: jax.Array, hx: jax.Array, hy: jax.Array, permittivity: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    height, width = e.shape

    def step(i: jax.Array, fields: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        e, hx, hy = fields
        hx = hx.at[:-1].add(-COURANT * jnp.diff(e, axis=0))
        hy = hy.at[:, :-1].add(COURANT * jnp.diff(e, axis=1))
        curl = jnp.diff(hy, axis=1)[1:-1, :-1] - jnp.diff(hx, axis=0)[:-1, 1:-1]
        e = e.at[1:-1, 1:-1].add(COURANT / permittivity[1:-1, 1:-1] * curl)
        pulse = jnp.exp(-(((i - DELAY) / WIDTH) ** 2)).astype(e.dtype)
        return e.at[height // 2, width // 2].add(pulse), hx, hy

    return jax.lax.fori_loop(0, STEPS, step, (e, hx, hy))


def inputs(random: np.random.Generator, dtype: str, size: tuple[int, int]) -> tuple[jax.Array, ...]:
    """An electric field of noise, and a medium of glass on the right."""
    e = np.pad(random.standard_normal((size[0] - 2, size[1] - 2)), 1)  # the walls are at 0
    permittivity = np.ones(size)
    permittivity[:, 2 * size[1] // 3 :] = 2.25
    arrays = e, np.zeros(size), np.zeros(size), permittivity
    return tuple(jnp.asarray(array, dtype) for array in arrays)

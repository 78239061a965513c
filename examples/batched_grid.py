"""A batch as the z axis of the grid: one launch instead of one per element.

Heat spreads on a batch of plates. The kernel handles all plates at once: it finds its plate by
``blockIdx.z``. With ``vmap="broadcast_all"``, ``jax.vmap`` calls it once, with the batch in front
of every array, and computes ``grid=`` again for these arrays: a layer of blocks per plate. Nested
batches work alike, because only the number of plates counts. (A grid has at most 65535 layers.)

The default, ``vmap="nodes"``, works for any kernel: it launches it once per plate, all in one
program, and the launches may run at once. Begin with the default. The z axis is for many elements
so small that their launches take most of the time.

    python examples/batched_grid.py

The kernel runs on the GPU or, where there is none, on the CPU. The results are compared with
jax.numpy; the exit status is 1 if they disagree.
"""

from __future__ import annotations

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge

CUDA = r"""
extern "C" __global__ void spread(const float* u, const float* rate, float* out, int width,
                                  int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  // The plate of this layer of blocks, and the rate that goes with it.
  const float* plate = u + static_cast<size_t>(blockIdx.z) * width * height;
  const int i = y * width + x;
  const float here = plate[i];
  // At the border a point is its own neighbour, so no heat leaves.
  const float left = x > 0 ? plate[i - 1] : here;
  const float right = x + 1 < width ? plate[i + 1] : here;
  const float above = y > 0 ? plate[i - width] : here;
  const float below = y + 1 < height ? plate[i + width] : here;
  out[static_cast<size_t>(blockIdx.z) * width * height + i] =
      here + rate[blockIdx.z] * (left + right + above + below - 4 * here);
}
"""
BLOCK = (16, 16)


def grid(u: jax.ShapeDtypeStruct, rate: jax.ShapeDtypeStruct, *, width: int, height: int):
    """Blocks of one plate, times plates: keywords are of one element, shapes of the batch."""
    plates = u.size // (width * height)
    return jge.cdiv(width, BLOCK[0]), jge.cdiv(height, BLOCK[1]), plates


def make(vmap: str) -> jge.CudaKernel:
    return jge.cuda_kernel(
        CUDA, "spread", out_shape=lambda u, *_, **__: u, grid=grid, block=BLOCK, vmap=vmap
    )


def step(kernel, plate, rate):
    """One step on one plate."""
    height, width = plate.shape
    return kernel(plate, rate, width=width, height=height)


def step_in_numpy(plate, rate):
    padded = jnp.pad(plate, 1, mode="edge")
    around = padded[1:-1, :-2] + padded[1:-1, 2:] + padded[:-2, 1:-1] + padded[2:, 1:-1]
    return plate + rate * (around - 4 * plate)


def count_nodes(function, *args) -> int:
    """Launches and copies in a call of a jitted function."""
    jge.reset_stats()
    with jge.options(use_graphs=False):
        jax.block_until_ready(jax.jit(function)(*args))
    return jge.stats()["nodes"]


def main() -> int:
    plates = jnp.asarray(np.random.default_rng(0).random((24, 50, 70), np.float32))
    rates = jnp.linspace(0.05, 0.24, 24, dtype=jnp.float32)
    agree = True
    for vmap in ("nodes", "broadcast_all"):
        one = partial(step, make(vmap))
        cases = {
            "24 plates": (jax.vmap(one), jax.vmap(step_in_numpy), plates, rates),
            # "broadcast_all" repeats an unbatched array; "nodes" shares it.
            "24 plates, one rate": (
                jax.vmap(one, (0, None)),
                jax.vmap(step_in_numpy, (0, None)),
                plates,
                rates[3],
            ),
            "4 x 6 plates": (
                jax.vmap(jax.vmap(one)),
                jax.vmap(jax.vmap(step_in_numpy)),
                plates.reshape(4, 6, 50, 70),
                rates.reshape(4, 6),
            ),
        }
        for name, (function, reference, *args) in cases.items():
            error = float(jnp.max(jnp.abs(jax.jit(function)(*args) - reference(*args))))
            agree &= error < 1e-5
            count = count_nodes(function, *args)
            print(f"vmap={vmap!r:16} {name:20} {count:3} nodes, largest error {error:.1e}")
    if not agree:
        print("the kernel and jax.numpy disagree", file=sys.stderr)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())

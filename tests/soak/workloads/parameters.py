"""parameters.py: structs with pointers, absent inputs, scratch memory and enumerations."""

from __future__ import annotations

import random

import jax
import numpy as np

import jax_graphenc as jge
from workloads import Checks, Workload

SOURCE = r"""
enum class Mode { kKeep, kNegate };
struct Arrays { int n; const float* x; const float* bias; float* work; float* out; };
extern "C" __global__ void through(Arrays a, Mode mode, float scale = 2) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.n) return;
  a.work[i] = scale * a.x[i] + (a.bias ? a.bias[i] : 0);
  a.out[i] = mode == Mode::kNegate ? -a.work[i] : a.work[i];
}
"""
through = jge.cuda_kernel(
    SOURCE,
    "through",
    out_shape=lambda a_x: a_x,
    grid=lambda a_x: jge.cdiv(a_x.size, 64),
    block=64,
    values={"a": lambda a_x: (a_x.size,)},
    scratch={"a.work": lambda a_x: a_x},
)


def in_numpy(x, bias, mode):
    out = 2 * x + (0 if bias is None else bias)
    return -out if mode == "kNegate" else out


def struct_kernels(rng: random.Random) -> Checks:
    """Kernels whose arrays are members of a struct: alone, in a region, and in a batch."""
    x = np.float32(rng.randrange(100)) + np.arange(rng.choice((7, 64, 300)), dtype=np.float32)
    mode = rng.choice(("kKeep", "kNegate"))
    bias = rng.choice((None, x[::-1].copy()))

    def twice(x):
        return through(through(x, bias, mode=mode), None, mode="kKeep")

    want = in_numpy(in_numpy(x, bias, mode), None, "kKeep")
    for function in (twice, jax.jit(jge.graph(twice))):
        for _ in range(rng.randint(1, 3)):
            yield function(x), want
    rows = np.stack([x, x + 1, x])
    yield (
        jax.vmap(lambda row: through(row, bias, mode=mode))(rows),
        np.stack([in_numpy(row, bias, mode) for row in rows]),
    )


WORKLOADS: dict[Workload, float] = {struct_kernels: 2}

"""kernels.py: the CUDA kernels that the soak runs, each with the same in numpy.

They compute in unsigned integers, whose sums are exact in any order. The sources are few and fixed,
since code that is loaded on a device stays there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import jax_graphenc as jge

SOURCE = r"""
extern "C" __global__ void combine(const unsigned* x, unsigned* out, unsigned a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + 1;
}
extern "C" __global__ void mix(const unsigned* x, const unsigned* y, unsigned* out, unsigned a,
                               int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[n - 1 - i];
}
extern "C" __global__ void scale(unsigned* u, unsigned a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) u[i] = a * u[i] + 7;
}
extern "C" __global__ void accumulate(const unsigned* x, unsigned* u, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&u[i], x[i]);
}
// Its threads wait for each other.
extern "C" __global__ void turn(const unsigned* x, unsigned* out, int n) {
  __shared__ unsigned tile[64];
  int begin = blockIdx.x * blockDim.x;
  int size = min(n - begin, (int)blockDim.x);
  int t = threadIdx.x;
  if (t < size) tile[t] = x[begin + t];
  __syncthreads();
  if (t < size) out[begin + t] = tile[size - 1 - t];
}
"""
# It ends a GPU's context, so it is for the CPU alone.
TRAP = r"""
extern "C" __global__ void trap_at(const unsigned* x, unsigned* out, unsigned bad, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (x[i] == bad) __trap();
  out[i] = x[i];
}
"""
# Small whole numbers are exact in floats, too.
SQUARE = r"""
extern "C" __global__ void square(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * x[i];
}
"""
BLOCK = 64


@dataclass(frozen=True)
class Kernel:
    """A kernel, and what it does: the new contents of its output.

    Attributes:
        cuda: called as ``cuda(*arrays, n=..., a=...)``; in place if ``in_place``.
        numpy: the same, of all inputs and ``a``.
        inputs: arrays that it takes in JAX.
        in_place: whether its last input is its output.
        has_value: whether it takes ``a``.
    """

    cuda: jge.CudaKernel
    numpy: Callable[..., np.ndarray]
    inputs: int
    in_place: bool = False
    has_value: bool = True

    def values(self, n: int, a: object) -> dict[str, object]:
        """What it is called with behind its arrays."""
        return {"n": n, "a": a} if self.has_value else {"n": n}


def _first(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _blocks(x: Any, *_: Any, **__: Any) -> int:
    return jge.cdiv(x.size, BLOCK)


def _define(
    name: str,
    *,
    in_place: bool = False,
    source: str = SOURCE,
    reference: Callable[..., Any] | None = None,
) -> jge.CudaKernel:
    output: dict[str, Any] = {"params": {"u": "inout"}} if in_place else {"out_shape": _first}
    return jge.cuda_kernel(source, name, grid=_blocks, block=BLOCK, reference=reference, **output)


def _turn(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x[i : i + BLOCK][::-1] for i in range(0, x.size, BLOCK)])


def _u32(a: object) -> np.uint32:
    return np.uint32(a)


COMBINE = Kernel(_define("combine"), lambda x, a: _u32(a) * x + _u32(1), 1)
MIX = Kernel(_define("mix"), lambda x, y, a: _u32(a) * x + y[::-1], 2)
SCALE = Kernel(_define("scale", in_place=True), lambda u, a: _u32(a) * u + _u32(7), 1, True)
ACCUMULATE = Kernel(
    _define("accumulate", in_place=True), lambda x, u: x + u, 2, True, has_value=False
)
TURN = Kernel(_define("turn"), _turn, 1, has_value=False)
KERNELS = (COMBINE, MIX, SCALE, ACCUMULATE, TURN)

TRAP_AT = _define("trap_at", source=TRAP)
SQUARED = _define("square", source=SQUARE, reference=lambda x, *, n: x * x)

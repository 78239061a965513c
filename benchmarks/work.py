"""The measured works, made of two small kernels.

Each work has its case for the result file, its first argument, the result of a number of calls, and
the way it is called: ``donate`` and ``feed`` make every call update one array; ``keep`` holds
arguments alive, so that XLA must move the next ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Source

SIZE = 4096
BLOCK = 256
ROW = 256  # floats that one block works on
KEPT = 64  # more than the places of any peer's cache

# Small, so that the cost of a launch shows.
ADD = r"""
extern "C" __global__ void add(const float* x, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + a;
}
"""

# One block, whose time grows with n.
SPIN = r"""
extern "C" __global__ void spin(const float* x, float* out, float a, int n) {
  float value = x[threadIdx.x];
  for (int i = 0; i < n; ++i) value = fmaf(value, 1.0f, a);
  out[threadIdx.x] = value;
}
"""

Kernel = Callable[[jax.Array, float, int], jax.Array]
Function = Callable[[jax.Array], jax.Array]


def cubin(source: str, symbol: str) -> bytes:
    """An ``extern "C"`` kernel, compiled for this machine's GPU."""
    major, minor = jge.device_info().compute_capability
    code = Source(source, f"<{symbol}>")
    return compile_source(code, (symbol,), f"sm_{major}{minor}", None).data


def our_kernels() -> tuple[Kernel, Kernel]:
    """``add`` and ``spin`` as the package's kernels."""
    add = jge.cuda_kernel(
        ADD, "add", out_shape=lambda x, **_: x, grid=-(-SIZE // BLOCK), block=BLOCK
    )
    spin = jge.cuda_kernel(SPIN, "spin", out_shape=lambda x, **_: x, grid=1, block=ROW)
    return (lambda x, a, n: add(x, a=a, n=n)), (lambda x, a, n: spin(x, a=a, n=n))


@dataclass(frozen=True)
class Chain:
    """x + kernels: each kernel adds 1 to the previous result."""

    kernels: int
    moving: bool = False

    shape: ClassVar[tuple[int, ...]] = (SIZE,)
    feed: ClassVar[bool] = True

    @property
    def case(self) -> dict[str, Any]:
        addresses = "move" if self.moving else "repeat"
        return {"work": "chain", "kernels": self.kernels, "addresses": addresses}

    @property
    def donate(self) -> bool:
        return not self.moving

    @property
    def keep(self) -> int:
        return KEPT if self.moving else 0

    def argument(self) -> jax.Array:
        return jnp.zeros(SIZE)

    def expected(self, calls: int) -> Any:
        return self.kernels * calls

    def of(self, add: Kernel, spin: Kernel) -> Function:
        def run(x: jax.Array) -> jax.Array:
            for _ in range(self.kernels):
                x = add(x, 1.0, SIZE)
            return x

        return run


@dataclass(frozen=True)
class Loop:
    """x + iterations * body, by a counted loop."""

    iterations: int
    body: int

    shape: ClassVar[tuple[int, ...]] = (SIZE,)
    feed: ClassVar[bool] = True
    donate: ClassVar[bool] = True
    keep: ClassVar[int] = 0

    @property
    def case(self) -> dict[str, Any]:
        return {"work": "loop", "iterations": self.iterations, "kernels per iteration": self.body}

    def argument(self) -> jax.Array:
        return jnp.zeros(SIZE)

    def expected(self, calls: int) -> Any:
        return self.iterations * self.body * calls

    def of(self, add: Kernel, spin: Kernel) -> Function:
        step = Chain(self.body).of(add, spin)
        return lambda x: jax.lax.fori_loop(0, self.iterations, lambda _, x: step(x), x)


class Unfed:
    """A work whose calls take the same array and do not change it."""

    feed: ClassVar[bool] = False
    donate: ClassVar[bool] = False
    keep: ClassVar[int] = 0


@dataclass(frozen=True)
class Independent(Unfed):
    """Row i is x with i added repeatedly: kernels of one block that may run side by side."""

    kernels: int
    repetitions: int

    @property
    def case(self) -> dict[str, Any]:
        return {"work": "independent", "kernels": self.kernels, "repetitions": self.repetitions}

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.kernels, ROW)

    def argument(self) -> jax.Array:
        return jnp.arange(ROW, dtype=jnp.float32)

    def expected(self, calls: int) -> Any:
        return np.arange(ROW) + self.repetitions * np.arange(self.kernels)[:, None]

    def of(self, add: Kernel, spin: Kernel) -> Function:
        def run(x: jax.Array) -> jax.Array:
            rows = [spin(x, float(i), self.repetitions) for i in range(self.kernels)]
            return jnp.concatenate(rows).reshape(self.shape)

        return run


@dataclass(frozen=True)
class Batch(Unfed):
    """``jax.vmap`` of a kernel of one block."""

    size: int
    repetitions: int

    @property
    def case(self) -> dict[str, Any]:
        return {"work": "vmap", "kernels": self.size, "repetitions": self.repetitions}

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size, ROW)

    def argument(self) -> jax.Array:
        return jnp.arange(self.size * ROW, dtype=jnp.float32).reshape(self.shape)

    def expected(self, calls: int) -> Any:
        return np.arange(self.size * ROW).reshape(self.shape) + self.repetitions

    def of(self, add: Kernel, spin: Kernel) -> Function:
        return jax.vmap(lambda row: spin(row, 1.0, self.repetitions))


Work = Chain | Loop | Independent | Batch

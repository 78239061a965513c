"""The functions that ``bench`` times, and how."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp

import jax_graphenc as jge
from jax_graphenc.base.timing import alternate
from jax_graphenc.cli.console import progress

# Small, so that the cost of a launch shows; integers keep results exact.
_ADD = r"""
extern "C" __global__ void add(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + 1;
}
"""
_SIZE = 4096
_WARM_UP = 5

Function: TypeAlias = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True, slots=True)
class Way:
    """A function to time.

    Attributes:
        what: the work, equal for ways that are compared.
        how: how this way does it.
        function: adds 1 to each element, ``steps`` times.
        steps: kernels in a call.
    """

    what: str
    how: str
    function: Function
    steps: int


def chains_and_loops(kernels: int) -> list[Way]:
    """A call of one kernel, and chains and loops of several, as regions and without."""
    add = jge.cuda_kernel(
        _ADD,
        "add",
        out_shape=lambda x: x,
        grid=lambda x: jge.cdiv(x.size, 256),
        block=256,
        values={"n": lambda x: x.size},
    )

    def chain(x: jax.Array) -> jax.Array:
        for _ in range(kernels):
            x = add(x)
        return x

    def loop(x: jax.Array) -> jax.Array:
        out: jax.Array = jax.lax.fori_loop(0, kernels, lambda _, x: add(x), x)
        return out

    return [
        Way("one call", "jax.jit, x + 1", lambda x: x + 1, 1),
        Way("one call", "jax.jit, a kernel", add, 1),
        Way(f"chain of {kernels}", "jax.jit, one by one", chain, kernels),
        Way(f"chain of {kernels}", "jax.jit, jge.graph", jge.graph(chain), kernels),
        Way(f"loop of {kernels}", "jax.jit, one by one", loop, kernels),
        Way(f"loop of {kernels}", "jax.jit, jge.graph", jge.graph(loop), kernels),
    ]


def measure(ways: list[Way], rounds: int) -> list[list[float]]:
    """Times each way once per round, in rotating order.

    Returns:
        Seconds of each call, by way.

    Raises:
        RuntimeError: if a way's result is wrong.
    """
    state = [jnp.zeros(_SIZE, jnp.int32) for _ in ways]
    with progress("compiling"):
        # Each call's result is donated to the next call, like a simulation's state.
        compiled = [
            jax.jit(way.function, donate_argnums=0).lower(x).compile()
            for way, x in zip(ways, state, strict=True)
        ]

    def once(i: int) -> float:
        start = time.perf_counter()
        state[i] = jax.block_until_ready(compiled[i](state[i]))
        return time.perf_counter() - start

    # No progress display here: drawing it would disturb the times.
    runs = {i: functools.partial(once, i) for i in range(len(ways))}
    seconds = alternate(runs, rounds=rounds, warmup=_WARM_UP)
    for way, x in zip(ways, state, strict=True):
        if not (x == way.steps * (_WARM_UP + rounds)).all():
            raise RuntimeError(f"{way.what}, {way.how}: the result is wrong: {x}")
    return list(seconds.values())

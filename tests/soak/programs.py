"""programs.py: random functions of kernels and jax.numpy, and the same in numpy.

A program is a list of steps on three arrays: (what, index of x, of y, of the result).
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from kernels import ACCUMULATE, COMBINE, MIX, SCALE, TURN, Kernel

import jax_graphenc as jge

Step = tuple[str, int, int, int]
Program = tuple[Step, ...]

SIZES = (1, 5, 64, 1000)
# Known programs: few enough to be compiled again and again.
COUNT = 16


def _call(kernel: Kernel, *arrays: Any, a: Any = 3) -> Any:
    return kernel.cuda(*arrays, **kernel.values(arrays[0].size, a))


def _loop(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    for i in range(5):
        x = SCALE.numpy(MIX.numpy(x, y, 2), i)
    return x


# Each in JAX and in numpy; x and y are of the same shape, and so is the result.
STEPS: dict[str, tuple[Callable[..., Any], Callable[..., np.ndarray]]] = {
    "combine": (lambda x, y: _call(COMBINE, x), lambda x, y: COMBINE.numpy(x, 3)),
    "mix": (lambda x, y: _call(MIX, x, y), lambda x, y: MIX.numpy(x, y, 3)),
    "scale": (lambda x, y: _call(SCALE, x), lambda x, y: SCALE.numpy(x, 3)),
    "accumulate": (lambda x, y: _call(ACCUMULATE, x, y), lambda x, y: x + y),
    "turn": (lambda x, y: _call(TURN, x), lambda x, y: TURN.numpy(x)),
    "traced value": (lambda x, y: _call(SCALE, x, a=y[0]), lambda x, y: SCALE.numpy(x, y[0])),
    "add": (lambda x, y: x + y, lambda x, y: x + y),
    "where": (lambda x, y: jnp.where(x > y, x, y + 1), lambda x, y: np.where(x > y, x, y + 1)),
    "halves": (
        lambda x, y: jnp.concatenate([_call(COMBINE, x[: x.size // 2 + 1]), y[x.size // 2 + 1 :]]),
        lambda x, y: np.concatenate([COMBINE.numpy(x[: x.size // 2 + 1], 3), y[x.size // 2 + 1 :]]),
    ),
    "loop": (
        lambda x, y: lax.fori_loop(
            0, 5, lambda i, u: _call(SCALE, _call(MIX, u, y, a=2), a=i.astype(jnp.uint32)), x
        ),
        _loop,
    ),
    "while": (
        lambda x, y: lax.fori_loop(0, (y[0] % 4).astype(int), lambda _, u: _call(COMBINE, u), x),
        lambda x, y: functools.reduce(lambda u, _: COMBINE.numpy(u, 3), range(y[0] % 4), x),
    ),
    "cond": (
        lambda x, y: lax.cond(x[0] > y[0], lambda: _call(TURN, y), lambda: _call(SCALE, y)),
        lambda x, y: TURN.numpy(y) if x[0] > y[0] else SCALE.numpy(y, 3),
    ),
}


def random_program(rng: random.Random) -> Program:
    """Up to twelve steps."""
    names = sorted(STEPS)
    return tuple(
        (rng.choice(names), *(rng.randrange(3) for _ in range(3)))
        for _ in range(rng.randint(1, 12))
    )


def known_program(number: int) -> Program:
    """One of the ``COUNT`` that come again and again."""
    return random_program(random.Random(number))


def _run(program: Program, arrays: Sequence[Any], twin: int) -> tuple[Any, ...]:
    arrays = list(arrays)
    for what, i, j, to in program:
        arrays[to] = STEPS[what][twin](arrays[i], arrays[j])
    return tuple(arrays)


def in_jax(program: Program) -> Callable[..., tuple[Any, ...]]:
    """The program as a function of three arrays."""

    def f(*arrays: Any) -> tuple[Any, ...]:
        return _run(program, arrays, 0)

    return f


def in_numpy(program: Program, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """What it gives."""
    return _run(program, arrays, 1)


def random_arrays(rng: random.Random, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Three of them."""
    numbers = np.random.default_rng(rng.getrandbits(64))
    return [numbers.integers(0, 2**32, shape, np.uint32) for _ in range(3)]


# Functions that all threads share, so that they meet in JAX's caches and in ours.
@functools.cache
def region(number: int) -> Any:
    """A known program as a region."""
    return jax.jit(jge.graph(in_jax(known_program(number))))


@functools.cache
def lone_kernels(number: int) -> Any:
    """A known program whose kernels XLA calls."""
    return jax.jit(in_jax(known_program(number)))


@functools.cache
def mapped_region(number: int) -> Any:
    """A known program as a region, mapped."""
    return jax.jit(jax.vmap(jge.graph(in_jax(known_program(number)))))


@functools.cache
def donating_region(number: int) -> Any:
    """A known program as a region that may write its arguments."""
    return jax.jit(jge.graph(in_jax(known_program(number))), donate_argnums=(0, 1, 2))


LONG = 150


@functools.cache
def long_region() -> Any:
    """Twice ``LONG`` nodes: more graphs than the cache holds, where options make both small."""

    def body(i: Any, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        x, y, z = arrays
        return _call(MIX, x, y), _call(SCALE, y, a=i.astype(jnp.uint32)), z

    return jax.jit(jge.graph(lambda *arrays: lax.fori_loop(0, LONG, body, arrays)))


def long_in_numpy(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, ...]:
    """What it gives."""
    for i in range(LONG):
        x, y = MIX.numpy(x, y, 3), SCALE.numpy(y, i)
    return x, y, z


SHARED = (region, lone_kernels, mapped_region, donating_region, long_region)

"""regions.py: kernels and regions inside JAX."""

from __future__ import annotations

import functools
import random
import tempfile
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import programs
from jax import export
from kernels import COMBINE, KERNELS, SCALE, SQUARED

import jax_graphenc as jge
from workloads import Checks


def known_region(rng: random.Random) -> Checks:
    """A region that other threads call as well, on results of its own, many times."""
    number = rng.randrange(programs.COUNT)
    arrays = programs.random_arrays(rng, (rng.choice(programs.SIZES),))
    got, want = arrays, arrays
    for _ in range(rng.randint(1, 20)):
        got = programs.region(number)(*got)
        want = programs.in_numpy(programs.known_program(number), want)
    yield from zip(got, want, strict=True)


def new_region(rng: random.Random) -> Checks:
    """A region that is traced, compiled, called and dropped."""
    program = programs.random_program(rng)
    arrays = programs.random_arrays(rng, (rng.choice(programs.SIZES),))
    f = jax.jit(jge.graph(programs.in_jax(program)))
    want = programs.in_numpy(program, arrays)
    for _ in range(3):
        yield from zip(f(*arrays), want, strict=True)


def lone_kernels(rng: random.Random) -> Checks:
    """Kernels that XLA calls one by one."""
    number = rng.randrange(programs.COUNT)
    arrays = programs.random_arrays(rng, (rng.choice(programs.SIZES),))
    want = programs.in_numpy(programs.known_program(number), arrays)
    for _ in range(rng.randint(1, 5)):
        yield from zip(programs.lone_kernels(number)(*arrays), want, strict=True)


def eager_kernel(rng: random.Random) -> Checks:
    """A kernel outside ``jax.jit``."""
    kernel, a = rng.choice(KERNELS), rng.randrange(3)
    n = rng.choice(programs.SIZES)
    arrays = programs.random_arrays(rng, (n,))[: kernel.inputs]
    value = (a,) if kernel.has_value else ()
    yield kernel.cuda(*arrays, **kernel.values(n, a)), kernel.numpy(*arrays, *value)


def mapped_region(rng: random.Random) -> Checks:
    """A region under ``jax.vmap``."""
    number = rng.randrange(programs.COUNT)
    arrays = programs.random_arrays(rng, (3, rng.choice(programs.SIZES)))
    program = programs.known_program(number)
    rows = [programs.in_numpy(program, row) for row in zip(*arrays, strict=True)]
    want = [np.stack(column) for column in zip(*rows, strict=True)]
    yield from zip(programs.mapped_region(number)(*arrays), want, strict=True)


def donating_region(rng: random.Random) -> Checks:
    """A region whose arguments become its results."""
    number = rng.randrange(programs.COUNT)
    want = programs.random_arrays(rng, (rng.choice(programs.SIZES),))
    got = [jax.numpy.array(x) for x in want]
    for _ in range(rng.randint(1, 10)):
        got = programs.donating_region(number)(*got)
        want = programs.in_numpy(programs.known_program(number), want)
    yield from zip(got, want, strict=True)


def long_region(rng: random.Random) -> Checks:
    """Hundreds of nodes: more graphs than the cache holds where options make both small."""
    arrays = programs.random_arrays(rng, (rng.choice((5, 64)),))
    want = programs.long_in_numpy(*arrays)
    for _ in range(rng.randint(1, 3)):
        yield from zip(programs.long_region()(*arrays), want, strict=True)


def exported_region(rng: random.Random) -> Checks:
    """A region that is saved, loaded and called."""
    number = rng.randrange(programs.COUNT)
    arrays = programs.random_arrays(rng, (64,))
    made = export.export(programs.region(number), disabled_checks=jge.export_checks())(*arrays)
    loaded = export.deserialize(made.serialize())
    want = programs.in_numpy(programs.known_program(number), arrays)
    yield from zip(loaded.call(*arrays), want, strict=True)


class _Followed:
    """A kernel in a file, which changes between two versions."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="jax_graphenc_soak_")
        self._file = Path(self._folder.name, "times.cu")
        self.lock = threading.Lock()
        self.write(2)
        self.kernel = jge.cuda_kernel(self._file, "times", grid=1, block=64, out_shape=lambda x: x)

    def write(self, factor: int) -> None:
        new = self._file.with_suffix(f".{threading.get_ident()}")
        new.write_text(
            'extern "C" __global__ void times(const unsigned* x, unsigned* out) '
            f"{{ out[threadIdx.x] = {factor}u * x[threadIdx.x]; }}"
        )
        new.replace(self._file)


@functools.cache
def _followed() -> _Followed:
    return _Followed()


def file_that_changes(rng: random.Random) -> Checks:
    """A kernel's file is written; the next call sees it, and those of other threads one version."""
    x = programs.random_arrays(rng, (64,))[0]
    followed = _followed()
    if rng.random() < 0.3:
        factor = rng.choice((2, 3))
        with followed.lock:
            followed.write(factor)
            yield followed.kernel(x), np.uint32(factor) * x
    else:
        got = np.asarray(followed.kernel(x))
        yield any(np.array_equal(got, np.uint32(factor) * x) for factor in (2, 3)), True


@functools.cache
def _tuned() -> Any:
    return jge.autotune(COMBINE.cuda, [{"block": 64}, {"block": 128}])


def tuned_kernel(rng: random.Random) -> Checks:
    """A kernel whose launch is chosen by timing, at its first call and where that is forgotten."""
    x = programs.random_arrays(rng, (rng.choice(programs.SIZES),))[0]
    yield _tuned()(x, a=3, n=x.size), COMBINE.numpy(x, 3)


def explained(rng: random.Random) -> Checks:
    """A region is explained, which traces it and runs nothing."""
    number = rng.randrange(programs.COUNT)
    arrays = programs.random_arrays(rng, (64,))
    yield bool(str(jge.explain(programs.region(number), *arrays))), True


@functools.cache
def _with_callback() -> Any:
    def f(x: Any) -> Any:
        x = COMBINE.cuda(x, a=3, n=x.size)
        x = jax.pure_callback(lambda u: np.asarray(u)[::-1], x, x)
        return SCALE.cuda(x, a=5, n=x.size)

    return jax.jit(f)


def callback(rng: random.Random) -> Checks:
    """Python is called between two kernels."""
    x = programs.random_arrays(rng, (64,))[0]
    yield _with_callback()(x), SCALE.numpy(COMBINE.numpy(x, 3)[::-1], 5)


@functools.cache
def _gradient() -> Any:
    def f(x: Any) -> Any:
        return SQUARED(SQUARED(x, n=x.size), n=x.size).sum()

    return jax.jit(jax.grad(jge.graph(f)))


def gradient(rng: random.Random) -> Checks:
    """The derivative of a region whose kernels have references."""
    numbers = np.random.default_rng(rng.getrandbits(64))
    x = numbers.integers(0, 16, rng.choice(programs.SIZES)).astype(np.float32)
    yield _gradient()(x), 4 * x**3


WORKLOADS = {
    known_region: 8,
    new_region: 1,
    lone_kernels: 3,
    eager_kernel: 3,
    mapped_region: 2,
    donating_region: 4,
    long_region: 2,
    exported_region: 1,
    gradient: 2,
    callback: 1,
    file_that_changes: 1,
    tuned_kernel: 1,
    explained: 0.3,
}

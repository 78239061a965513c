"""launches.py: kernels on slices of some buffers, for encoders, and the same in numpy."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import machine
import numpy as np
from kernels import KERNELS, Kernel
from workloads import Checks

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.calls.values import Keywords
from jax_graphenc.encoder.encoder import _program

BUFFERS, SIZE = 3, 100


@dataclass(frozen=True)
class Launch:
    """A kernel on slices of some buffers: (buffer, begin, end) for each pointer."""

    kernel: Kernel
    slices: tuple[tuple[int, int, int], ...]
    a: int

    @property
    def values(self) -> dict[str, Any]:
        begin, end = self.slices[0][1:]
        return self.kernel.values(end - begin, self.a)

    def of(self, buffers: list[Any]) -> list[Any]:
        """Its arrays."""
        return [buffers[which][begin:end] for which, begin, end in self.slices]

    def compute(self, buffers: list[np.ndarray]) -> None:
        """Does the same in numpy."""
        *_, out = arrays = self.of(buffers)
        inputs = arrays if self.kernel.in_place else arrays[:-1]
        out[:] = self.kernel.numpy(*inputs, *((self.a,) if self.kernel.has_value else ()))


def random_launch(rng: random.Random) -> Launch:
    """One that reads nothing that it writes, since a launch's threads have no order."""
    kernel = rng.choice(KERNELS)
    n = rng.choice((1, 16, rng.randint(1, SIZE)))
    pointers = kernel.inputs + (not kernel.in_place)
    out = rng.randrange(BUFFERS)
    others = [which for which in range(BUFFERS) if which != out]
    places = [rng.choice(others) for _ in range(pointers - 1)] + [out]
    begins = [rng.randint(0, SIZE - n) for _ in places]
    slices = tuple((p, b, b + n) for p, b in zip(places, begins, strict=True))
    return Launch(kernel, slices, rng.randrange(4))


class Buffers:
    """Some arrays of a library, and what should be in them."""

    def __init__(self, rng: random.Random, count: int = BUFFERS) -> None:
        numbers = np.random.default_rng(rng.getrandbits(64))
        self.want = list(numbers.integers(0, 2**32, (count, SIZE), np.uint32))
        self._library = rng.choice(machine.LIBRARIES)
        self.arrays = [self._library.array(x) for x in self.want]

    def append(self, encoder: jge.Encoder, launch: Launch) -> None:
        """Appends a launch, and does it in numpy."""
        encoder.append(launch.kernel.cuda, *launch.of(self.arrays), **launch.values)
        launch.compute(self.want)

    def checks(self) -> Checks:
        """What is in the arrays and what should be."""
        yield from zip([self._library.read(x) for x in self.arrays], self.want, strict=True)


def _address(x: Any) -> int:
    return x.ctypes.data if machine.ON_CPU else x.data.ptr


def enqueue(launch: Launch, arrays: list[Any], stream: int, device: jax.Device) -> None:
    """What a library does with a stream that it is given."""
    shapes = tuple((x.shape, np.dtype(x.dtype)) for x in arrays)
    program, _ = _program(launch.kernel.cuda, shapes, Keywords(launch.values), (), device)
    addresses = [_address(x) for x in arrays]
    if launch.kernel.in_place:  # its last array is an argument and a result
        addresses.append(addresses[-1])
    driver = "host" if machine.ON_CPU else "cuda"
    _core.launch_on_stream(program, driver, device.local_hardware_id or 0, addresses, stream)


# Encoders that live as long as the process; each is lent to one thread at a time.
_KEPT = [(jge.Encoder(device), threading.Lock()) for device in machine.DEVICES for _ in range(3)]


@contextlib.contextmanager
def some_encoder(rng: random.Random) -> Iterator[jge.Encoder]:
    encoder, lock = rng.choice(_KEPT)
    if rng.random() < 0.5 and lock.acquire(blocking=False):
        try:
            yield encoder
        finally:
            lock.release()
    else:
        with jge.Encoder(rng.choice(machine.DEVICES)) as encoder:
            yield encoder


def run_threads(function: Any, arguments: list[tuple[Any, ...]]) -> None:
    """Calls a function on a thread for each of the arguments; raises what one of them raised."""
    errors: list[BaseException] = []

    def call(*args: Any) -> None:
        try:
            function(*args)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=args) for args in arguments]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]

"""What a compiled kernel takes of a GPU, and how full its multiprocessors are with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jax_graphenc import _core
from jax_graphenc.base.errors import UnsupportedOnCpuError
from jax_graphenc.calls import launch
from jax_graphenc.calls.code import Code
from jax_graphenc.devices.device_info import driver_of
from jax_graphenc.devices.target import architecture


@dataclass(frozen=True, slots=True)
class KernelAttributes:
    """What a kernel takes of a device.

    Attributes:
        registers: 32-bit registers of each thread.
        local_bytes: local memory of each thread, in bytes: registers that were spilled, and arrays
            that are indexed by what only the run knows.
        shared_bytes: static shared memory of each block, in bytes.
        constant_bytes: constant memory of the image, in bytes.
        max_threads: threads that a block can have with so many registers.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    constant_bytes: int
    max_threads: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many blocks of a kernel run on a multiprocessor at the same time.

    Attributes:
        blocks: that fit; 0 if not one does.
        threads: of these blocks.
        max_threads: that a multiprocessor can hold.
    """

    blocks: int
    threads: int
    max_threads: int

    @property
    def fraction(self) -> float:
        """The part of a multiprocessor's threads that is in use, from 0 to 1."""
        return self.threads / self.max_threads


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A kernel's image on a GPU."""

    driver: str
    ordinal: int
    image: bytes
    symbol: str
    info: dict[str, Any]
    name: str

    def attributes(self) -> KernelAttributes:
        """What the kernel takes."""
        return KernelAttributes(
            **_core.kernel_attributes(self.driver, self.ordinal, self.image, self.symbol)
        )

    def occupancy(self, block: Any, shared_mem: Any) -> Occupancy:
        """How full a multiprocessor is with blocks of this shape."""
        dims = launch.dim3(block, "block", self.name)
        launch.check_launch((1, 1, 1), dims, (1, 1, 1), self.name)
        return self._occupancy(math.prod(dims), launch.integer(shared_mem, "shared_mem", self.name))

    def _occupancy(self, threads: int, shared_bytes: int) -> Occupancy:
        blocks = _core.active_blocks(
            self.driver, self.ordinal, self.image, self.symbol, threads, shared_bytes
        )
        return Occupancy(blocks, blocks * threads, self.info["max_threads_per_multiprocessor"])

    def suggest_block(self, shared_mem: int | Callable[[int], int]) -> int:
        """The largest of the block sizes, whole warps, that keep a multiprocessor fullest.

        Raises:
            ValueError: if no block fits.
        """
        warp = self.info["warp_size"]
        most = self.attributes().max_threads
        best, threads = 0, 0
        for block in range(most // warp * warp, 0, -warp):
            shared = shared_mem(block) if callable(shared_mem) else shared_mem
            found = self._occupancy(block, launch.integer(shared, "shared_mem", self.name))
            if found.threads > threads:
                best, threads = block, found.threads
            if threads == found.max_threads:
                break
        if not best:
            raise ValueError(
                f"kernel '{self.name}': no block fits on {self.info['name']} with "
                f"shared_mem={shared_mem!r}"
            )
        return best


def on_device(code: Code, expression: str, name: str, device: jax.Device | None) -> OnDevice:
    """Compiles a kernel for a GPU, or takes it from the cache.

    Raises:
        TypeError: if its name has a placeholder left.
        UnsupportedOnCpuError: for the CPU.
    """
    device = device if device is not None else jax.devices()[0]
    driver = driver_of(device)
    if driver == "host":
        raise UnsupportedOnCpuError(
            f"kernel '{name}' on {device}: registers, spills and occupancy are a GPU's; on the CPU "
            "a thread runs one block after another, and no size of a block is fuller than another"
        )
    if "{" in expression:
        raise TypeError(
            f"kernel '{expression}' depends on the dtypes of its inputs: pass an array for each"
        )
    ordinal = device.local_hardware_id or 0
    info = _core.device_info(driver, ordinal)
    image, entry = code.image(expression, (architecture(info),))
    return OnDevice(driver, ordinal, image, entry.symbol if entry else expression, info, name)


def dtypes_of(inputs: Sequence[Any]) -> list[np.dtype[Any]]:
    """The dtypes of arrays, or of what has one."""
    return [np.dtype(x if isinstance(x, type) else getattr(x, "dtype", x)) for x in inputs]

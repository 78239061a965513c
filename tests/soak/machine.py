"""machine.py: the device that is tried, and the libraries at hand."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

DEVICE = jax.devices()[0]
ON_CPU = DEVICE.platform == "cpu"
# CuPy's arrays are on the first GPU; numpy's are on every CPU device.
DEVICES = jax.devices()[:2] if ON_CPU else [DEVICE]


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


# Libraries for a GPU; None where there is none.
cupy = None if ON_CPU else _module("cupy")
torch = None if ON_CPU else _module("torch")
# CuPy's memory pool has a part for each stream, so there are few, made once.
CUPY_STREAMS = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)] if cupy else []
# While it is captured, no other thread may use it.
CUPY_CAPTURED_STREAM = cupy.cuda.Stream(non_blocking=True) if cupy else None


def release_memory() -> None:
    """Gives back the GPU's memory that the libraries keep for later."""
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
    if torch is not None:
        torch.cuda.empty_cache()


@dataclass(frozen=True)
class Numpy:
    """Numpy's arrays, for the software driver."""

    def array(self, x: np.ndarray) -> Any:
        """A copy of numpy's array."""
        return x.copy()

    def read(self, x: Any) -> np.ndarray:
        """What the array holds."""
        return x.copy()


@dataclass(frozen=True)
class CuPy:
    """CuPy's arrays, made on one of its streams."""

    stream: Any

    def array(self, x: np.ndarray) -> Any:
        with self.stream:
            made = cupy.asarray(x)
        self.stream.synchronize()
        return made

    def read(self, x: Any) -> np.ndarray:
        with self.stream:
            return cupy.asnumpy(x)


# What encoders are tried with; empty on a GPU without a library.
LIBRARIES = [Numpy()] if ON_CPU else [CuPy(stream) for stream in CUPY_STREAMS]

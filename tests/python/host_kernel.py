"""host_kernel.py: runs kernels of CPU images from tests, by the structures of host_image.h."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from jax_graphenc.compiler.source import Image


class Param(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint32), ("size", ctypes.c_uint32))


class Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("shared", ctypes.c_void_p),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
        ("message", ctypes.c_void_p),
        ("message_size", ctypes.c_uint64),
        ("calls", ctypes.c_void_p),
        ("threads", ctypes.c_void_p),
    )


class Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("launch", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Launch))),
        ("go_on", ctypes.c_void_p),
        ("param_count", ctypes.c_uint32),
        ("params", ctypes.POINTER(Param)),
    )


class HostImage(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("kernel_count", ctypes.c_uint32),
        ("kernels", ctypes.POINTER(Kernel)),
    )


class Failed(Exception):
    """A launch failed: (code, message)."""


class LoadedImage:
    """A CPU image in this process, and its kernels by name."""

    def __init__(self, path: Path) -> None:
        self.loaded = ctypes.CDLL(str(path))
        table = HostImage.in_dll(self.loaded, "jge_host_image")
        assert table.abi == 3
        self.kernels = {k.name.decode(): k for k in table.kernels[: table.kernel_count]}

    def run(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        *args: np.ndarray | np.generic | ctypes.Structure,
        message_size: int = 500,
    ) -> None:
        """Launches a kernel on arrays (their addresses are passed) and numpy scalars."""
        kernel = self.kernels[name]
        assert kernel.param_count == len(args)
        values: list[object] = []
        for arg, param in zip(args, kernel.params[: len(args)], strict=True):
            if isinstance(arg, np.ndarray):
                value: object = ctypes.c_void_p(arg.ctypes.data)
            elif isinstance(arg, np.generic):
                value = ctypes.create_string_buffer(arg.tobytes(), arg.nbytes)
            else:
                value = arg
            assert ctypes.sizeof(value) == param.size  # type: ignore[arg-type]
            values.append(value)
        pointers = (ctypes.c_void_p * len(args))(*(ctypes.addressof(v) for v in values))  # type: ignore[arg-type]
        message = ctypes.create_string_buffer(b"untouched", max(message_size, 10))
        three = ctypes.c_uint32 * 3
        launch = Launch(
            three(*(*grid, 1, 1)[:3]),
            three(*(*block, 1, 1)[:3]),
            0,
            None,
            pointers,
            ctypes.addressof(message),
            message_size,
            None,  # Nothing here lets threads wait: such kernels run through XLA.
            None,
        )
        code = kernel.launch(ctypes.byref(launch))
        if code != 0:
            raise Failed(code, message.value.decode())


@contextlib.contextmanager
def loaded(image: Image) -> Iterator[LoadedImage]:
    """Loads an image for as long as the context lasts; what it left on disk goes at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{os.getpid()}.so"
        path.write_bytes(image.data)
        result = LoadedImage(path)
    yield result

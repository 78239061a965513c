"""The kernels in a shared object for the CPU: abi/host_image.h, read back."""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from jax_graphenc.compiler.demangle import demangle, parameter_types
from jax_graphenc.compiler.source import Entry


class _Param(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint32), ("size", ctypes.c_uint32))


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("launch", ctypes.c_void_p),
        ("go_on", ctypes.c_void_p),
        ("param_count", ctypes.c_uint32),
        ("params", ctypes.POINTER(_Param)),
    )


class _HostImage(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_uint32),
        ("kernel_count", ctypes.c_uint32),
        ("kernels", ctypes.POINTER(_Kernel)),
        ("checked", ctypes.c_uint32),
    )


@contextlib.contextmanager
def _loaded(data: bytes, folder: Path) -> Iterator[ctypes.CDLL]:
    """Loads a shared object from memory, since the temporary folder may be mounted noexec.

    The loader takes two objects of one path, or of one file, for the same; so the name stands in a
    folder that is new, and refers to a file that is.
    """
    with open(os.memfd_create("jax_graphenc"), "wb") as file:
        file.write(data)
        file.flush()
        path = folder / "image"
        path.symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        library = ctypes.CDLL(str(path))
    try:
        yield library
    finally:
        _ctypes.dlclose(library._handle)


def read_entries(data: bytes, folder: Path) -> tuple[Entry, ...]:
    """Loads a shared object and reads its table of kernels; `folder` is a new, empty place."""
    with _loaded(data, folder) as library:
        table = _HostImage.in_dll(library, "jge_host_image")
        return tuple(
            Entry(
                kernel.name.decode(),
                kernel.name.decode(),
                parameter_types(demangle(kernel.type.decode())),
                tuple(param.size for param in kernel.params[: kernel.param_count]),
            )
            for kernel in table.kernels[: table.kernel_count]
        )

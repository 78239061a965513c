"""NVRTC as a library: its version, and its functions as cuda-python calls them."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from jax_graphenc.base.errors import CompilerNotFoundError


@functools.cache
def load() -> Any:
    """Returns the module `cuda.bindings.nvrtc`, with the library behind it loaded."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # cuda-python reports a missing library by bare RuntimeErrors, too.
        raise CompilerNotFoundError(
            "NVRTC, which compiles CUDA source for GPUs, could not be loaded: "
            f"{type(error).__name__}: {error}. Install it with "
            '`pip install "nvidia-cuda-nvrtc>=13,<14" "nvidia-cuda-runtime>=13,<14" '
            '"nvidia-cuda-crt>=13,<14"`.'
        ) from error
    return nvrtc


@functools.cache
def version() -> tuple[int, int]:
    """Returns NVRTC's version.

    It is part of every key, so that a process which finds its images in the cache asks for nothing
    else: the library is asked itself, since importing cuda-python takes some 70 ms more.

    Raises:
        CompilerNotFoundError: NVRTC is not installed.
    """
    found = ctypes.c_int(), ctypes.c_int()
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path  # as cuda-python does
        failed = path is None or ctypes.CDLL(path).nvrtcVersion(*map(ctypes.byref, found))
    except Exception:  # No pathfinder, its error or the loader's: cuda-python says what is wrong.
        failed = True
    if failed:
        major, minor = check(load().nvrtcVersion())
        return int(major), int(minor)
    return found[0].value, found[1].value


def error_name(result: Any) -> str:
    """What NVRTC calls one of its results."""
    _, text = load().nvrtcGetErrorString(result)
    return str(text.decode())


def check(result: tuple[Any, ...]) -> Any:
    """Unpacks what a function of cuda-python returns; a call of ours that fails is our mistake."""
    code, *values = result
    if code != load().nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: {error_name(code)}")
    return values[0] if len(values) == 1 else values


def fetch(program: Any, size: Any, get: Any) -> bytes:
    """Fetches one of a program's results."""
    length: int = check(size(program))
    # cuda-python writes into the bytes object. Python shares the objects of length 0 and 1, so
    # a longer one is made.
    data = b"\0" * max(length, 2)
    check(get(program, data))
    return data[:length]


def fetch_text(program: Any, size: Any, get: Any) -> str:
    """Fetches one of a program's results that is text."""
    return fetch(program, size, get).decode(errors="replace").strip("\0 \n")

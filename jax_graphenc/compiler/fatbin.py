"""Images for several architectures in one, by nvFatbin. Needs neither a GPU nor a driver."""

from __future__ import annotations

import functools
from typing import Any

from jax_graphenc.base.errors import CompilerNotFoundError


@functools.cache
def _load() -> Any:
    """The module `cuda.bindings.nvfatbin`, with the library behind it loaded."""
    try:
        from cuda.bindings import nvfatbin

        nvfatbin.version()
    except Exception as error:  # cuda-python has errors of several kinds for a missing library.
        reason = str(error).partition("\n")[0]
        raise CompilerNotFoundError(
            "nvFatbin, which joins images for several GPU architectures, could not be loaded: "
            f"{type(error).__name__}: {reason}. Install it with "
            '`pip install "nvidia-nvfatbin>=13,<14"`, or name one architecture in '
            "options(cuda_targets=)"
        ) from error
    return nvfatbin


def version() -> tuple[int, int]:
    """Returns nvFatbin's version.

    Raises:
        CompilerNotFoundError: nvFatbin is not installed.
    """
    major, minor = _load().version()
    return int(major), int(minor)


@functools.lru_cache(maxsize=64)
def join(images: tuple[tuple[str, bytes], ...]) -> bytes:
    """Joins images to a fatbin, of which the driver takes the one that fits its device best.

    Args:
        images: (architecture, image) pairs: a cubin for `"sm_90a"`, PTX for
            `"compute_80"`.

    Raises:
        CompilerNotFoundError: nvFatbin is not installed.
    """
    nvfatbin = _load()
    # Uncompressed, so that the bytes are the same wherever they are made.
    handle = nvfatbin.create(["-64", "-compress=false"], 2)
    try:
        for target, image in images:
            kind, _, number = target.partition("_")
            if kind == "sm":
                nvfatbin.add_cubin(handle, image, len(image), number, target)
            else:
                text = image.rstrip(b"\0") + b"\0"
                nvfatbin.add_ptx(handle, text, len(text), number, target, "")
        data = bytearray(nvfatbin.size(handle))
        nvfatbin.get(handle, data)
        return bytes(data)
    finally:
        nvfatbin.destroy(handle)

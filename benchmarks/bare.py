"""Builds and calls ``bare_handler.cc``: the least that launches a kernel from XLA."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np


def find_cuda_headers() -> str:
    """The folder of cuda.h: an installed wheel's, or the toolkit's."""
    spec = importlib.util.find_spec("nvidia")
    places = (
        [Path(p) / "cu13/include" for p in (spec.submodule_search_locations or ())] if spec else []
    )
    places += [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"]
    for place in places:
        if (place / "cuda.h").is_file():
            return str(place)
    raise SystemExit("cuda.h was not found: set CUDA_HOME")


class Bare:
    """The handler, built into a folder that must stay and registered with XLA.

    It has the command-buffer trait: where that is on, XLA captures its launches.
    """

    def __init__(self, folder: Path) -> None:
        library = folder / "bare_handler.so"
        subprocess.run(
            [
                "g++",
                "-std=c++20",
                "-O2",
                "-shared",
                "-fPIC",
                f"-I{jax.ffi.include_dir()}",
                f"-I{find_cuda_headers()}",
                str(Path(__file__).with_name("bare_handler.cc")),
                "-l:libcuda.so.1",
                "-o",
                str(library),
            ],
            check=True,
        )
        self._library = ctypes.CDLL(str(library))
        self._library.LoadFunction.restype = ctypes.c_int64
        capsule = jax.ffi.pycapsule(self._library.BareLaunch)
        jax.ffi.register_ffi_target("bare_launch", capsule, platform="CUDA")

    def kernel(
        self, image: bytes, symbol: str, grid: int, block: int = 256
    ) -> Callable[[jax.Array, float, int], jax.Array]:
        """A kernel ``(const float* x, float* out, float a, int n)`` as a function of x, a and n."""
        function = self._library.LoadFunction(image, symbol.encode())
        if not function:
            raise SystemExit("the bare handler could not load its kernel")

        def launch(x: jax.Array, a: float, n: int) -> jax.Array:
            call = jax.ffi.ffi_call(
                "bare_launch",
                jax.ShapeDtypeStruct(x.shape, x.dtype),
                vmap_method="sequential",
            )
            return call(
                x,
                function=np.int64(function),
                grid=np.int32(grid),
                block=np.int32(block),
                a=np.float32(a),
                n=np.int32(n),
            )

        return launch

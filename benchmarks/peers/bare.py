"""A bare FFI handler per kernel, ``bare_handler.cc``: the minimum that launches a kernel from XLA.

Registered twice: with the command-buffer trait, so that XLA captures its launches, and without.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path

import jax
import numpy as np
from ways import AbsentError
from work import ADD, BLOCK, ROW, SIZE, SPIN, Kernel, cubin

from peers import Jitted

TARGETS = {
    "FFI call": ("bare_launch", "BareLaunch"),
    "FFI call, no trait": ("bare_launch_uncaptured", "BareLaunchUncaptured"),
}


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
    raise AbsentError("cuda.h was not found: set CUDA_HOME")


class Bare:
    """The handlers, built and registered with XLA."""

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
        for target, symbol in TARGETS.values():
            capsule = jax.ffi.pycapsule(getattr(self._library, symbol))
            jax.ffi.register_ffi_target(target, capsule, platform="CUDA")

    @classmethod
    def peers(cls, gpu: bool) -> dict[str, Jitted]:
        """A peer with the trait and one without."""
        if not gpu:
            raise AbsentError("needs a GPU")
        with tempfile.TemporaryDirectory() as folder:  # a loaded library outlives its file
            bare = cls(Path(folder))
        add = bare.load(cubin(ADD, "add"), "add")
        spin = bare.load(cubin(SPIN, "spin"), "spin")
        return {
            name: Jitted(
                name,
                bare.kernel(target, add, -(-SIZE // BLOCK), BLOCK),
                bare.kernel(target, spin, 1, ROW),
                None,
            )
            for name, (target, _) in TARGETS.items()
        }

    def load(self, image: bytes, symbol: str) -> int:
        """A kernel of an image, on the current device."""
        function = self._library.LoadFunction(image, symbol.encode())
        if not function:
            raise AbsentError("the bare handler could not load its kernel")
        return int(function)

    def kernel(self, target: str, function: int, grid: int, block: int) -> Kernel:
        """A kernel ``(const float* x, float* out, float a, int n)`` as a function of x, a and n."""

        def launch(x: jax.Array, a: float, n: int) -> jax.Array:
            call = jax.ffi.ffi_call(
                target,
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

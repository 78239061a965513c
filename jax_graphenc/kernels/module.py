"""``cuda_module``: several kernels of one source."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_graphenc.base.tracebacks import ends_at_caller
from jax_graphenc.calls.code import kernel_signatures
from jax_graphenc.compiler.files import FollowedSource
from jax_graphenc.kernels.define import cuda_kernel
from jax_graphenc.kernels.kernel import CudaKernel
from jax_graphenc.kernels.sources import MODULE, follow, is_path, read_image, refuse_for_images
from jax_graphenc.signature.signature import Signature


class CudaModule:
    """A source or an image with several kernels; made by ``cuda_module``."""

    def __init__(self, code: FollowedSource | bytes | Mapping[str, bytes]) -> None:
        self._code = code

    def __repr__(self) -> str:
        if not isinstance(self._code, FollowedSource):
            return "<cuda_module of an image>"
        found = self.kernels.values()
        rows = "".join(f"\n  {kernel.line:5}  {kernel}" for kernel in found)
        return f"<cuda_module {self._code.current().source.filename}: {len(found)} kernels{rows}>"

    @property
    def kernels(self) -> Mapping[str, Signature]:
        """The signatures of the source's ``__global__`` functions by name, in its order.

        A signature has ``name``, ``parameters``, ``line`` and ``template_parameters``, and prints
        as C++ declares it. Of functions that share a name, all but the first are listed by it and
        their parameters, as in ``"scale(const double* x)"``.

        Raises:
            TypeError: for an image, whose names are known when it is loaded.
        """
        if not isinstance(self._code, FollowedSource):
            raise TypeError(
                "an image's kernels are known when it is loaded on a device: name the one that you "
                "want, as in module.kernel('scale', params={'x': 'const float*', ...}, ...)"
            )
        return kernel_signatures(self._code.current().source)

    @ends_at_caller
    def kernel(self, name: str, **definition: Any) -> CudaKernel:
        """Makes a JAX function of one of the kernels.

        Args:
            name: as ``cuda_kernel`` takes it.
            **definition: as ``cuda_kernel`` takes it; ``defines``, ``options``, ``include_dirs``
                and ``globals`` add to the module's.

        Raises:
            ValueError, TypeError: as ``cuda_kernel`` does.
        """
        return cuda_kernel(self._code, name, **definition)


@ends_at_caller
def cuda_module(
    source: str | Path | bytes | Mapping[str, bytes],
    *,
    defines: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    globals: Mapping[str, Any] | None = None,
) -> CudaModule:
    """Makes a source of several kernels a module.

    Kernels of one source that are ``extern "C"`` share one compiled image on a GPU. Example::

        solver = jge.cuda_module("solver.cu", defines={"TILE": 32})
        residual = solver.kernel("residual", out_shape=lambda u: u, grid=64, block=256)
        smooth = solver.kernel("smooth<{u}>", out_shape=lambda u: u, grid=64, block=256)

    Args:
        source: the path of a .cu file, or CUDA C++ text; the path of a .ptx, .cubin or .fatbin
            file, or the bytes of one. A .cu file and what it includes are followed, by the module
            and by its kernels, as ``cuda_kernel`` says.
        defines: preprocessor macros, as ``cuda_kernel`` takes them.
        options: further options for NVRTC.
        include_dirs: folders where headers are looked for, behind the source's own.
        globals: initial values of ``__constant__`` and ``__device__`` variables.

    Returns:
        A ``CudaModule``, whose ``.kernel(name, ...)`` makes kernels.

    Raises:
        TypeError, ValueError: as ``cuda_kernel`` does.
        OSError: if the file cannot be read.
    """
    image = read_image(Path(source) if isinstance(source, str) and is_path(source) else source)
    if isinstance(image, bytes | Mapping):
        refuse_for_images("*", defines, options, include_dirs, globals)
        return CudaModule(image)
    return CudaModule(follow(image, MODULE, defines, options, include_dirs, globals))

"""A kernel's code: CUDA C++ that is compiled for a target, or images that are compiled already."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from jax_graphenc.base.errors import UnsupportedOnCpuError
from jax_graphenc.base.options import current as current_options
from jax_graphenc.compiler import fatbin
from jax_graphenc.compiler.compile import CPU_TARGETS, compile_source, compiled_text
from jax_graphenc.compiler.diagnostics import UnknownKernelError
from jax_graphenc.compiler.source import Entry, Source
from jax_graphenc.signature.parse import list_kernels
from jax_graphenc.signature.signature import Signature


@dataclass(frozen=True, slots=True)
class CudaSource:
    """Kernels as CUDA C++; compiled for whatever platform a call is lowered for."""

    source: Source

    def image(self, expression: str, targets: Sequence[str]) -> tuple[bytes, Entry]:
        """Compiles, or finds in the cache; raises what the compiler raises.

        Raises:
            TypeError: if the kernel's parameters are not the same on all targets.
        """
        expressions = [expression]
        if targets[0] not in CPU_TARGETS:
            # A GPU image holds every extern "C" kernel of the source anyway: one image for all.
            expressions += [k for k in _extern_c_kernels(self.source) if k != expression]
            expressions.sort()
        folder = current_options().cache_dir
        try:
            images = [compile_source(self.source, expressions, t, folder) for t in targets]
        except UnknownKernelError as error:
            kernels = kernel_signatures(self.source).values()
            there = ", ".join(dict.fromkeys(k.name for k in kernels)) or "none"
            raise UnknownKernelError(f"{error}; its kernels are: {there}", error.log) from None
        entries = [image.entries[expressions.index(expression)] for image in images]
        for target, entry in zip(targets, entries, strict=True):
            if entry != entries[0]:
                raise TypeError(
                    f"kernel '{expression}' is {_spelled(entries[0])} on {targets[0]} and "
                    f"{_spelled(entry)} on {target}: one call takes the same parameters "
                    "everywhere, so lower for one of them at a time"
                )
        if len(images) == 1:
            return images[0].data, entries[0]
        pairs = zip(targets, images, strict=True)
        return fatbin.join(tuple((target, image.data) for target, image in pairs)), entries[0]

    def text(self, expression: str, target: str) -> str:
        """The text that a compiler is given for a target; raises what the compiler raises."""
        return compiled_text(self.source, [expression], target, current_options().cache_dir)


@dataclass(frozen=True, slots=True)
class Prebuilt:
    """Kernels as images, by platform: ``(("cuda", cubin), ("cpu", shared object))``."""

    images: tuple[tuple[str, bytes], ...]

    def image(self, expression: str, targets: Sequence[str]) -> tuple[bytes, Entry | None]:
        """Picks the platform's image, whose names are not checked.

        Raises:
            UnsupportedOnCpuError: if there is none for the CPU.
            ValueError: if there is none for CUDA.
        """
        platform = "cpu" if targets[0] in CPU_TARGETS else "cuda"
        images = dict(self.images)
        if platform not in images:
            kind = UnsupportedOnCpuError if platform == "cpu" else ValueError
            raise kind(
                f"kernel '{expression}' was given as an image for {', '.join(images)} and is "
                f"called on {platform}; give its source, an image for {platform}, or reference="
            )
        return images[platform], None


Code = CudaSource | Prebuilt


def kernel_signatures(source: Source) -> dict[str, Signature]:
    """The source's ``__global__`` functions by name, in its order.

    Of several that share a name, all but the first go by their name and parameters.
    """
    found: dict[str, Signature] = {}
    for kernel in list_kernels(
        source.text, defines=dict(source.defines), filename=source.filename, line=source.line
    ):
        found[kernel.name if kernel.name not in found else str(kernel)] = kernel
    return found


def _spelled(entry: Entry) -> str:
    return f"{entry.symbol}({', '.join(entry.types)})"


@functools.lru_cache(maxsize=256)
def _extern_c_kernels(source: Source) -> tuple[str, ...]:
    kernels = list_kernels(source.text, defines=dict(source.defines), filename=source.filename)
    return tuple(k.name.rpartition("::")[2] for k in kernels if k.extern_c)

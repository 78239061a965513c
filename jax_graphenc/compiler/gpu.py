"""CUDA C++ to cubin or PTX: by NVRTC, or by nvcc where NVRTC cannot."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jax_graphenc.base.errors import CompilerNotFoundError, KernelCompileError
from jax_graphenc.compiler import nvcc, nvrtc
from jax_graphenc.compiler.diagnostics import errors
from jax_graphenc.compiler.includes import find_includes
from jax_graphenc.compiler.source import Image, Source


def identity() -> str:
    """Says which compilers and headers make the images: part of a cache key.

    Raises:
        CompilerNotFoundError: There is none.
    """
    try:
        first = nvrtc.identity()
    except CompilerNotFoundError:
        if nvcc.find() is None:
            raise
        first = "no nvrtc"
    return f"{first}; {nvcc.identity()}"


def headers_digest() -> str:
    """Names the contents of every header of ours that an image is made with."""
    return nvrtc.headers_digest()


def compile_image(
    source: Source, expressions: Sequence[str], target: str, cache_dir: Path | None = None
) -> Image:
    """Compiles a source to a cubin, or to PTX.

    Args:
        source: The source.
        expressions: Its kernels to keep: `"saxpy"`, `"scale<float>"`.
        target: The architecture: `"sm_90a"` for a cubin, `"compute_90"` for PTX.
        cache_dir: Where headers that NVRTC brings along may be put.

    Raises:
        CompilerNotFoundError: There is no compiler.
        KernelCompileError: The source does not compile.
        UnknownKernelError: One of `expressions` is not in it.
    """
    try:
        return nvrtc.compile_image(source, expressions, target, cache_dir)
    except CompilerNotFoundError:
        if nvcc.find() is None:
            raise
        return nvcc.compile_image(source, expressions, target)
    except KernelCompileError as error:
        if _is_users_mistake(error, source) or nvcc.find() is None:
            raise
        return _by_nvcc(error, source, expressions, target)


def compiled_text(
    source: Source, expressions: Sequence[str], target: str, cache_dir: Path | None = None
) -> str:
    """The text that `compile_image` compiles; raises what it raises."""
    try:
        return nvrtc.compiled_text(source, expressions, target, cache_dir)
    except (CompilerNotFoundError, KernelCompileError):
        compile_image(source, expressions, target, cache_dir)
        return nvcc.translation_unit(source, expressions)


def _by_nvcc(
    error: KernelCompileError, source: Source, expressions: Sequence[str], target: str
) -> Image:
    """Compiles what NVRTC could not; where nvcc does not even begin, NVRTC's error stands.

    nvcc compiles host code and wants the real headers of every library.
    """
    try:
        return nvcc.compile_image(source, expressions, target)
    except KernelCompileError as further:
        # A header that NVRTC has a stand-in for, which nvcc takes no notice of.
        if "No such file" in further.log:
            raise error from None
        refusal = re.search(r"^nvcc fatal\s*: (.+)$", further.log, re.MULTILINE)
        if refusal is None or errors(further.log):
            raise
    where = f"{source.filename}:{line}: " if (line := _including_line(source, error)) else ""
    raise KernelCompileError(
        f"{where}NVRTC cannot compile what this includes, and nvcc, which would compile it "
        f"instead, refuses: {refusal[1]}\n{error}",
        error.log,
    ) from None


def _including_line(source: Source, error: KernelCompileError) -> int | None:
    """The line of the user's directive that led to the first error, where it can be told."""
    found = errors(error.log)
    for at, text in enumerate(source.text.split("\n")):
        name = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', text)
        missing = re.search(r'open source file "([^"]+)"', error.log)
        if name and (
            (missing and missing[1] == name[1])
            or (found and f"/{found[0].file}".endswith(f"/{name[1]}"))
        ):
            return source.line + at
    return None


def _is_users_mistake(error: KernelCompileError, source: Source) -> bool:
    """Whether another compiler would say the same: what is wrong stands in the user's own files.

    What NVRTC cannot compile shows as a header that it does not have, or as errors in one.
    """
    if "open source file" in error.log:
        return False
    found = errors(error.log)
    return not found or found[0].file in (source.filename, *find_includes(source))

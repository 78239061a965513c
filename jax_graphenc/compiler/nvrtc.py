"""CUDA C++ to cubin or PTX, by NVRTC. Needs neither a GPU nor a driver."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from jax_graphenc.base.errors import KernelCompileError
from jax_graphenc.compiler.attempts import Attempt, compile_first, left_out_among, with_remark
from jax_graphenc.compiler.cuda_headers import more_headers, toolkit_headers
from jax_graphenc.compiler.demangle import TYPE_PROBE, demangle, parameter_types
from jax_graphenc.compiler.diagnostics import (
    UnknownKernelError,
    compile_error,
    errors,
    with_places,
)
from jax_graphenc.compiler.encoding import MARK
from jax_graphenc.compiler.header_trace import traced_headers
from jax_graphenc.compiler.includes import find_includes, includes_by_macro, users_files
from jax_graphenc.compiler.nvrtc_library import check, error_name, fetch, fetch_text, load, version
from jax_graphenc.compiler.prelude import PRELUDE
from jax_graphenc.compiler.ptx import extern_functions, parameter_sizes
from jax_graphenc.compiler.source import Entry, Image, Source, folder_digest, split_options

_INCLUDE = Path(__file__).parent.parent / "include"
_STAND_INS = _INCLUDE / "nvrtc"
# Headers of libraries for the host, behind the user's own.
_HOST_LIBRARIES = _INCLUDE / "host_libraries"
_LAST = _HOST_LIBRARIES / "last"  # behind CUDA's own


@functools.cache
def identity() -> str:
    """Says which compiler and headers make the images: part of a cache key.

    Raises:
        CompilerNotFoundError: NVRTC is not installed.
    """
    major, minor = version()
    parts = [f"nvrtc {major}.{minor}"]
    for folder in toolkit_headers():
        parts.append(str(folder))
        for header in (folder / "cuda.h", folder / "cuda" / "std" / "__cccl" / "version.h"):
            if header.is_file():
                text = header.read_text(errors="replace")
                parts += re.findall(r"#\s*define (CUDA_VERSION \d+|CCCL_VERSION \d+)", text)
    return "; ".join(parts)


@functools.cache
def headers_digest() -> str:
    """Names the contents of every header of ours that an image is made with."""
    return f"{PRELUDE} {folder_digest(_STAND_INS, _HOST_LIBRARIES)}"


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
        CompilerNotFoundError: NVRTC is not installed.
        KernelCompileError: The source does not compile.
        UnknownKernelError: One of `expressions` is not in it.
    """
    return _first(source, expressions, target, cache_dir)[0]


def compiled_text(
    source: Source, expressions: Sequence[str], target: str, cache_dir: Path | None = None
) -> str:
    """The text of the attempt that compiles; raises as `compile_image` does."""
    _, attempt = _first(source, expressions, target, cache_dir)
    remark = "// Functions without annotations are device functions.\n"
    return with_remark(f"{remark if attempt.default_device else ''}{_text(attempt)}", attempt)


def _first(
    source: Source, expressions: Sequence[str], target: str, cache_dir: Path | None
) -> tuple[Image, Attempt]:
    def compile(attempt: Attempt) -> Image:
        try:
            return _compile(attempt, expressions, target, toolkit_headers())
        except KernelCompileError as error:
            if "open source file" not in error.log or not (headers := more_headers(cache_dir)):
                raise
        return _compile(attempt, expressions, target, headers)

    return compile_first(source, compile, tells_host_functions=True)


def _text(attempt: Attempt) -> str:
    source = attempt.source
    return (
        f"{TYPE_PROBE}{PRELUDE}{source.macro_directives}{source.include_directives}"
        f"{source.line_directive}{source.text}"
    )


def _compile(
    attempt: Attempt, expressions: Sequence[str], target: str, headers: tuple[Path, ...]
) -> Image:
    nvrtc = load()
    source = attempt.source
    text = _text(attempt)
    probes = [f"&__jge_type_of<decltype(&{expression})>" for expression in expressions]
    # Quoted includes are looked for beside it first.
    name = str(source.base / "kernel.cu")
    options = _options(attempt, target, headers)
    unmarked = _without_marks(source) if not attempt.headers else []
    options += [f"--include-path={folder}" for folder in dict.fromkeys(f for _, _, f in unmarked)]
    given_headers = {
        **{header: contents for header, contents, _ in unmarked},
        **{
            n: contents.encode("utf-8", "surrogateescape")
            for n, contents in attempt.headers.items()
        },
    }
    program = check(
        nvrtc.nvrtcCreateProgram(
            text.encode("utf-8", "surrogateescape"),
            name.encode(),
            len(given_headers),
            list(given_headers.values()),
            [header.encode() for header in given_headers],
        )
    )
    try:
        for wanted in (*expressions, *probes):
            check(nvrtc.nvrtcAddNameExpression(program, wanted.encode()))
        given = [option.encode() for option in options]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(given), given)
        log = fetch_text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        log = with_places(log).replace(name, source.filename)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _error(source, expressions, target, log or error_name(result))
        ptx = fetch_text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        lowered = {
            wanted: check(nvrtc.nvrtcGetLoweredName(program, wanted.encode())).decode()
            for wanted in (*expressions, *probes)
        }
        virtual = target.startswith("compute_")
        # ptxas, which makes a cubin, refuses these itself.
        if virtual and (missing := left_out_among(extern_functions(ptx), attempt)):
            unresolved = f"ptxas fatal   : Unresolved extern function '{missing[0]}'"
            raise _error(source, expressions, target, unresolved)
        return Image(
            ptx.encode()
            if virtual
            else fetch(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
            tuple(
                Entry(
                    expression,
                    lowered[expression],
                    parameter_types(demangle(lowered[probe])),
                    parameter_sizes(ptx, lowered[expression]),
                )
                for expression, probe in zip(expressions, probes, strict=True)
            ),
            log,
            None if given_headers else _files(source, text, name, options, headers),
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _without_marks(source: Source) -> list[tuple[str, bytes, str]]:
    """Headers with a byte-order mark, which NVRTC takes for code: name, contents without, folder.

    NVRTC prefers a header that it is given in memory, by the name in the directive. A name of
    several files stays theirs.
    """
    names: dict[str, set[str]] = {}
    find_includes(source, spelled=names)
    found = []
    for name, paths in names.items():
        path = next(iter(paths))
        contents = Path(path).read_bytes() if len(paths) == 1 else b""
        if contents.startswith(MARK):
            found.append((name, contents.removeprefix(MARK), str(Path(path).parent)))
    return found


def _files(
    source: Source, text: str, name: str, options: list[str], headers: tuple[Path, ...]
) -> tuple[str, ...] | None:
    """The user's files that NVRTC has read, where the source itself does not tell."""
    if not includes_by_macro(source):
        return None
    read = traced_headers(text, name, options)
    ours = (_STAND_INS, _HOST_LIBRARIES)
    return None if read is None else users_files(read, source, os.getcwd(), (*ours, *headers))


def _options(attempt: Attempt, target: str, headers: tuple[Path, ...]) -> list[str]:
    """Returns the command line; stand-ins for C and C++ headers come before the user's headers."""
    source = attempt.source
    options = [f"--gpu-architecture={target}"]
    if not source.has_quotes:
        options.append("--generate-line-info")
    if version() >= (13, 0):
        # Names of static variables are random otherwise, and the same source another image.
        options.append("--frandom-seed=0")
    given = list(split_options(source.options))
    if not any(flag == "-std=" for flag, _ in given):
        options.append("--std=c++17")
    # A source, and CCCL, may define a macro of the prelude in their own way.
    options.append("--diag-suppress=47")
    options.append(f"--include-path={_STAND_INS}")
    options += [flag + value for flag, value in given if flag not in ("-D", "-U")]
    if attempt.default_device and "-default-device" not in source.options:
        options.append("-default-device")
    own = () if source.folder is None else (source.folder,)
    options += [f"--include-path={folder}" for folder in (*own, _HOST_LIBRARIES, *headers, _LAST)]
    return options


def _error(source: Source, expressions: Sequence[str], target: str, log: str) -> Exception:
    major, minor = version()
    found = errors(log)
    # Names are looked up in a file of NVRTC's own, after the source has been parsed.
    if found and all(error.file == "__nv_name_map" for error in found):
        wrong = [e for e in expressions if _named_in(e, log)]
        names = ", ".join(f'"{e}"' for e in wrong or expressions)
        return UnknownKernelError(
            f"{names} does not name one kernel in {source.filename} (NVRTC: {found[0].text})", log
        )
    if not toolkit_headers() and "open source file" in log:
        log += (
            "\nCUDA's own headers were not found either; "
            "`pip install nvidia-cuda-runtime nvidia-cuda-crt` brings cuda_fp16.h and others."
        )
    if re.search(r"#\s*include\s*<cub/cub\.cuh>", source.text):
        log += (
            "\n<cub/cub.cuh> holds code for the host, which NVRTC cannot compile: include what the "
            "kernel uses, such as <cub/block/block_reduce.cuh>, or install CUDA's toolkit, whose "
            "nvcc compiles it."
        )
    return compile_error(source, expressions, target, f"NVRTC {major}.{minor}", log)


def _named_in(expression: str, log: str) -> bool:
    """Tells whether NVRTC complains of an expression; it repeats the line that it made of it."""
    line = rf"^\s*#pragma nv_mangled_name {re.escape(expression)}\s*$"
    return re.search(line, log, re.MULTILINE) is not None

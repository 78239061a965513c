"""CUDA C++ to cubin or PTX, by NVRTC. Needs neither a GPU nor a driver."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jax_graphenc.compiler import cache
from jax_graphenc.compiler.demangle import demangle, parameter_types
from jax_graphenc.compiler.diagnostics import UnknownKernelError, compile_error, errors
from jax_graphenc.compiler.prelude import PRELUDE
from jax_graphenc.compiler.source import (
    Entry,
    Image,
    Source,
    folder_digest,
    split_options,
)
from jax_graphenc.errors import CompilerNotFoundError, KernelCompileError

_STAND_INS = Path(__file__).parent.parent / "include" / "nvrtc"
# The lowered name of an instance of this holds the kernel's type, whatever aliases, macros and
# templates it was written with.
TYPE_PROBE = "template <typename __jge_F> __device__ char __jge_type_of;\n"


@functools.cache
def _load() -> Any:
    """Returns the module `cuda.bindings.nvrtc`, with the library behind it loaded."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # cuda-python reports a missing library by bare RuntimeErrors, too.
        raise CompilerNotFoundError(
            "NVRTC, which compiles CUDA source for GPUs, could not be loaded: "
            f"{type(error).__name__}: {error}. Install it with "
            '`pip install "jax_graphenc[cuda13]"`.'
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
        major, minor = _check(_load().nvrtcVersion())
        return int(major), int(minor)
    return found[0].value, found[1].value


@functools.cache
def toolkit_headers() -> tuple[Path, ...]:
    """Finds the folders of CUDA's own headers (cuda_fp16.h and cccl), or returns ().

    Wheels come first: a toolkit on the machine may be of another version than NVRTC's.
    """
    roots = _wheels()
    places = [place for root in roots for place in (root / "cu13", root / "cuda_runtime")]
    for place in (*(place / "include" for place in places), *_pathfinder_headers("cudart")):
        if (place / "cuda_fp16.h").is_file():
            cccl = (place / "cccl", *(root / "cuda_cccl" / "include" for root in roots))
            return (place, *(folder for folder in cccl if folder.is_dir()))
    return ()


def _wheels() -> list[Path]:
    namespace = importlib.util.find_spec("nvidia")
    return [Path(root) for root in (namespace and namespace.submodule_search_locations) or ()]


def _pathfinder_headers(library: str) -> list[Path]:
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return []
    found = find_nvidia_header_directory(library)
    return [Path(found)] if found else []


def more_headers(cache_dir: Path | None) -> tuple[Path, ...]:
    """Finds further headers of CUDA and CCCL, for a source that needs what is not there, or ().

    NVRTC 13.3 and later bring their own along, which fit best; else those of a toolkit.
    """
    if bundled := _bundled_headers(cache_dir):
        return bundled
    known = toolkit_headers()
    return (
        tuple(folder for folder in (*known, *_pathfinder_headers("cccl")) if folder.is_dir())
        if known
        else ()
    )


@functools.cache
def _bundled_headers(cache_dir: Path | None) -> tuple[Path, ...]:
    """Unpacks the headers that NVRTC brings along (20 MB), once per version."""
    nvrtc = _load()
    install = getattr(nvrtc, "nvrtcInstallBundledHeaders", None)
    if install is None:
        return ()
    major, minor = version()
    folder = None if cache_dir is None else cache_dir / f"nvrtc-{major}.{minor}-headers"
    if folder is None or not (cache.is_private(folder.parent) and cache.is_private(folder)):
        folder = Path(_temporary_folder().name)
    try:
        skip = nvrtc.NVRTC_INSTALL_HEADERS_SKIP_IF_EXISTS
        (code, *_) = install(str(folder).encode(), int(skip))
    except Exception:  # cuda-python has errors of several kinds for a function that is not there.
        return ()
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return ()
    return (folder, folder / "cccl")


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is gone when the process is."""
    return tempfile.TemporaryDirectory(prefix="jax_graphenc_")


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
    return f"{PRELUDE} {folder_digest(_STAND_INS)}"


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
    try:
        return _compile(source, expressions, target, toolkit_headers())
    except KernelCompileError as error:
        if "open source file" not in error.log or not (headers := more_headers(cache_dir)):
            raise
    return _compile(source, expressions, target, headers)


def _compile(
    source: Source, expressions: Sequence[str], target: str, headers: tuple[Path, ...]
) -> Image:
    nvrtc = _load()
    text = (
        f"{TYPE_PROBE}{PRELUDE}{source.macro_directives}{source.include_directives}"
        f"{source.line_directive}{source.text}"
    )
    probes = [f"&__jge_type_of<decltype(&{expression})>" for expression in expressions]
    program = _check(nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], []))
    try:
        for name in (*expressions, *probes):
            _check(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        options = [option.encode() for option in _options(source, target, headers)]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        log = with_places(log)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _error(source, expressions, target, log or _name_of(result))
        ptx = _text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        lowered = {
            name: _check(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode()
            for name in (*expressions, *probes)
        }
        virtual = target.startswith("compute_")
        return Image(
            ptx.encode()
            if virtual
            else _bytes(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
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
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


_PLACE = re.compile(
    r"^(?P<file>[^\n]+?)\((?P<line>\d+)\): (?=\w)"
    r"|\bat line (?P<at>\d+)(?: of (?P<of>[^\n)]+))?",
    re.MULTILINE,
)


def with_places(log: str) -> str:
    """Writes file:12 as every other compiler does, where NVRTC says file(12) or "at line 12"."""
    file = ""

    def place(match: re.Match[str]) -> str:
        nonlocal file
        if match["line"] is None:
            return f"at {(match['of'] or file).strip(chr(34))}:{match['at']}"
        file = match["file"]
        return f"{file}:{match['line']}: "

    return _PLACE.sub(place, log)


def _options(source: Source, target: str, headers: tuple[Path, ...]) -> list[str]:
    """Returns the command line; stand-in headers come before the user's and CUDA's own."""
    options = [f"--gpu-architecture={target}", "--generate-line-info"]
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
    folders = (*((source.folder,) if source.folder else ()), *headers)
    options += [f"--include-path={folder}" for folder in folders]
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
            "\nCUDA's own headers were not found either; `pip install nvidia-cuda-runtime` "
            "brings cuda_fp16.h and others."
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


_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z]+(?P<bits>\d+)[^,\[\]]*(?:\[(?P<count>\d+)\])?"
)


def parameter_sizes(ptx: str, symbol: str) -> tuple[int, ...] | None:
    """Reads the bytes of each parameter of a kernel out of PTX, or returns None."""
    match = re.search(rf"\.entry\s+{re.escape(symbol)}\s*\((?P<params>[^)]*)\)", ptx)
    if match is None:
        # An entry without parameters may also come without parentheses.
        return () if re.search(rf"\.entry\s+{re.escape(symbol)}\s", ptx) else None
    return tuple(
        int(param["bits"]) // 8 * int(param["count"] or 1)
        for param in _PARAM.finditer(match["params"])
    )


def _name_of(result: Any) -> str:
    _, text = _load().nvrtcGetErrorString(result)
    return str(text.decode())


def _check(result: tuple[Any, ...]) -> Any:
    """Unpacks what a function of cuda-python returns; a call of ours that fails is our mistake."""
    code, *values = result
    if code != _load().nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: {_name_of(code)}")
    return values[0] if len(values) == 1 else values


def _bytes(program: Any, size: Any, get: Any) -> bytes:
    """Fetches one of a program's results."""
    length: int = _check(size(program))
    # cuda-python writes into the bytes object. Python shares the objects of length 0 and 1 with
    # everybody, so one of its own is made.
    data = b"\0" * max(length, 2)
    _check(get(program, data))
    return data[:length]


def _text(program: Any, size: Any, get: Any) -> str:
    return _bytes(program, size, get).decode(errors="replace").strip("\0 \n")

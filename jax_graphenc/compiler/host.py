"""CUDA C++ to a shared object for the CPU, by the machine's C++ compiler."""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import functools
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from jax_graphenc.compiler.demangle import demangle, parameter_types
from jax_graphenc.compiler.diagnostics import UnknownKernelError, compile_error, errors
from jax_graphenc.compiler.prelude import PRELUDE
from jax_graphenc.compiler.shared_memory import hides_shared, rewrite_shared
from jax_graphenc.compiler.source import (
    Entry,
    Image,
    Source,
    folder_digest,
    included_files,
    split_options,
)
from jax_graphenc.compiler.static_shared import shared_memory_error
from jax_graphenc.errors import CompilerNotFoundError

_INCLUDE = Path(__file__).parent.parent / "include"
_HEADERS = (_INCLUDE / "host", _INCLUDE / "abi")
_CANDIDATES = ("g++", "clang++", "c++")
_TIMEOUT_S = 600  # A compiler that comes from PyPI builds its own runtime first.

# Type punning is everyday CUDA, math functions set no errno there, and there are no exceptions.
# _FORTIFY_SOURCE would check a longjmp that leaves a kernel.
_FLAGS = (
    *("-O2", "-g1", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-U_FORTIFY_SOURCE"),
    *("-fno-exceptions", "-fno-strict-aliasing", "-fno-math-errno", "-Wl,-z,defs"),
)
# Kernels that were not asked for are dropped, and the image can be unloaded. What divides by zero
# goes on (include/host/jge_division.h), and is not made a trap.
_GCC_FLAGS = (
    *("-fwhole-program", "-fno-gnu-unique", "-fno-diagnostics-show-caret"),
    "-fno-isolate-erroneous-paths-dereference",
)
_CLANG_FLAGS = (
    *("-fsanitize=integer-divide-by-zero", "-fno-sanitize-recover=integer-divide-by-zero"),
)

# A call before each access, to functions of ours: include/host/jge_check.h. At -O1, accesses stay
# on the lines that they are written on.
_GCC_CHECKS = (
    *("-O1", "-g", "-fsanitize=kernel-address", "--param=asan-stack=0", "--param=asan-globals=1"),
    "--param=asan-instrumentation-with-call-threshold=0",
    *("-Wl,--wrap=memcpy", "-Wl,--wrap=memmove", "-Wl,--wrap=memset"),
)


def find_compiler() -> tuple[str, ...]:
    """Finds the C++ compiler: `JAX_GRAPHENC_CXX`, `CXX`, or one that is on the PATH.

    Returns:
        Its command, which may have several words; the first is an absolute path.

    Raises:
        CompilerNotFoundError: There is none.
    """
    for variable in ("JAX_GRAPHENC_CXX", "CXX"):
        text = os.environ.get(variable, "")
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise CompilerNotFoundError(
                f"${variable}={text!r} is no command: {error}; {_INSTALL}"
            ) from None
        if words:
            path = shutil.which(words[0])
            if path is None:
                raise CompilerNotFoundError(
                    f"the C++ compiler of ${variable}, {words[0]!r}, was not found; {_INSTALL}"
                )
            return (os.path.abspath(path), *words[1:])
    for name in _CANDIDATES:
        path = shutil.which(name)
        if path is not None:
            return (os.path.abspath(path),)
    looked_for = ", ".join(_CANDIDATES)
    raise CompilerNotFoundError(
        "no C++ compiler was found to run CUDA source on the CPU (looked at $JAX_GRAPHENC_CXX and "
        f"$CXX, and for {looked_for} on the PATH); {_INSTALL}"
    )


_INSTALL = (
    "install g++ (Debian and Ubuntu: apt install g++), or `pip install ziglang` and set "
    'JAX_GRAPHENC_CXX="python -m ziglang c++", or pass reference= (the same function in jax.numpy)'
)


@functools.cache
def version_of(command: tuple[str, ...]) -> str:
    """Returns the first line of what a compiler says of its version.

    Raises:
        CompilerNotFoundError: It cannot be run.
    """
    try:
        output, _ = _run([*command, "--version"], cwd=None)
    except OSError as error:
        raise CompilerNotFoundError(
            f"the C++ compiler {shlex.join(command)} cannot be run: {error}; {_INSTALL}"
        ) from error
    return output.strip().partition("\n")[0]


def identity() -> str:
    """Says which compiler makes the images and for which machine: part of a cache key.

    Raises:
        CompilerNotFoundError: There is no C++ compiler.
    """
    command = find_compiler()
    words = (os.path.realpath(command[0]), *command[1:])
    flags = (*_FLAGS, *_GCC_FLAGS, *_CLANG_FLAGS, *_GCC_CHECKS)
    return "; ".join((shlex.join(words), version_of(command), platform.machine(), *flags))


@functools.cache
def headers_digest() -> str:
    """Names the contents of every header of ours that an image is made with."""
    return f"{PRELUDE} {folder_digest(*_HEADERS)}"


def compile_shared_object(
    source: Source, expressions: Sequence[str], *, checked: bool = False
) -> Image:
    """Compiles a source to a shared object that exports `jge_host_image` (abi/host_image.h).

    The same input gives the same bytes, in every process.

    Args:
        source: The source.
        expressions: Its kernels to put in the table: `"saxpy"`, `"scale<float>"`.
        checked: Find accesses out of bounds and barriers that not all threads reach, at several
            times the run time. Only barriers with a compiler that is not GCC.

    Raises:
        CompilerNotFoundError: There is no C++ compiler.
        KernelCompileError: The source does not compile, or uses what the CPU cannot do.
        UnknownKernelError: One of `expressions` is not in it.
    """
    command = find_compiler()
    version = version_of(command)
    with tempfile.TemporaryDirectory(prefix="jax_graphenc_") as name:
        folder = Path(name)

        def run(*more: str) -> str:
            arguments = [*command, *_options(source, version, folder, checked), "kernel.cc", *more]
            try:
                log, status = _run(arguments, cwd=folder)
            except subprocess.TimeoutExpired as timeout:
                raise compile_error(
                    source, expressions, "cpu", version, f"it took longer than {timeout.timeout} s"
                ) from timeout
            if status != 0:
                raise _error(source, expressions, version, log)
            return log

        unit = folder / "kernel.cc"
        unit.write_text(_translation_unit(source, expressions))
        if _hides_shared(source):
            run("-E", "-D__shared__=__shared__", "-o", "kernel.ii")
            unit.write_text(_rewritten((folder / "kernel.ii").read_text(), checked))
        log = run("-o", "kernel.so")
        data = (folder / "kernel.so").read_bytes()
        if too_much := shared_memory_error(source, data, checked):
            raise compile_error(source, expressions, "cpu", version, too_much)
        return Image(data, _read_entries(data, folder), log.strip())


def _translation_unit(source: Source, expressions: Sequence[str]) -> str:
    """Returns the headers, the source under its own name, and the table of its kernels."""
    rows = "".join(
        f"jge_row<decltype(&{expression}), &{expression}>({_string_literal(expression)}),\n"
        for expression in expressions
    )
    return (
        f'#include "jge_host.h"\n{PRELUDE}'
        f"{source.macro_directives}#include <assert.h>\n{_USERS}{source.include_directives}"
        f"{source.line_directive}{rewrite_shared(source.text)}\n{_USERS}"
        f'#line 1 "{_LAUNCHER}"\n'
        f"static const JgeHostKernel jge_kernels[] = {{\n{rows}}};\n"
        "const JgeHostImage jge_host_image = {\n"
        f"    JGE_HOST_IMAGE_ABI, {len(expressions)}, jge_kernels, JGE_IS_CHECKED}};\n"
    )


_LAUNCHER = "<launcher>"
_USERS = "#pragma jax_graphenc_users_source\n"  # before it and behind it


def _hides_shared(source: Source) -> bool:
    included = (Path(path).read_text(errors="replace") for path in included_files(source))
    return hides_shared(source.text, (source.macro_directives, *included))


def _rewritten(preprocessed: str, checked: bool) -> str:
    """A translation unit whose macros and included files are seen by `rewrite_shared`."""
    before, users, behind = preprocessed.split(_USERS)
    storage = "static" if checked else "thread_local"
    return f"{before}#define __shared__ {storage}\n{rewrite_shared(users)}{behind}"


def _string_literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _options(source: Source, version: str, folder: Path, checked: bool) -> list[str]:
    """Returns the command line. Of the user's options, those that every compiler has."""
    is_gcc = "clang" not in version
    options = ["-std=c++17", *_FLAGS, *(_GCC_FLAGS if is_gcc else _CLANG_FLAGS)]
    if checked:
        options += ["-DJGE_CHECKED", *(_GCC_CHECKS if is_gcc else ())]
    # The folder's random name must not reach the image.
    options.append(f"-ffile-prefix-map={folder}=.")
    options += [f"-I{place}" for place in _HEADERS]
    for flag, value in split_options(source.options):
        if flag == "-I":
            options.append(flag + os.path.abspath(value))
        elif flag == "-std=":
            options.append(flag + value)
    if source.folder is not None:
        options += ["-iquote", str(source.folder)]
    return options


def _error(source: Source, expressions: Sequence[str], version: str, log: str) -> Exception:
    found = errors(log)
    row = _ROW.search(log)
    if row is not None and found[0].file == _LAUNCHER and _UNKNOWN.search(found[0].text):
        # One line of the table per expression, after the line above it.
        name = expressions[int(row[1]) - 2]
        return UnknownKernelError(
            f'"{name}" does not name one kernel in {source.filename} ({version}: {found[0].text})',
            log,
        )
    return compile_error(source, expressions, "cpu", version, log)


_ROW = re.compile(rf"^{_LAUNCHER}:(\d+):\d+: error: ", re.MULTILINE)
_UNKNOWN = re.compile(
    r"not declared|undeclared|is not a member|no member named|unresolved overloaded|overloaded "
    r"function|no matches|does not refer|expected primary-expression|cannot resolve"
)


def _run(arguments: list[str], cwd: Path | None) -> tuple[str, int]:
    """Runs a compiler with all its children; returns its output and status.

    Raises:
        OSError: It cannot be run.
        subprocess.TimeoutExpired: It took too long, and was killed.
    """
    # Messages in English, and no date from __DATE__ in an image.
    environment = os.environ | {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    if cwd is not None:
        environment["TMPDIR"] = str(cwd)  # known to be writable
    with subprocess.Popen(
        arguments,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=_TIMEOUT_S)
        except BaseException:
            # The driver's children would otherwise compile on.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return output.decode(errors="replace"), process.returncode


# ---- Reading the kernel table back: abi/host_image.h ---------------------------------------------


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


def _read_entries(data: bytes, folder: Path) -> tuple[Entry, ...]:
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

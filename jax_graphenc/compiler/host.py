"""CUDA C++ to a shared object for the CPU, by the machine's C++ compiler."""

from __future__ import annotations

import functools
import os
import platform
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jax_graphenc.compiler.attempts import Attempt, compile_first, with_remark
from jax_graphenc.compiler.cxx import find_compiler, version_of
from jax_graphenc.compiler.diagnostics import UnknownKernelError, compile_error, errors
from jax_graphenc.compiler.host_image import read_entries
from jax_graphenc.compiler.includes import find_includes, users_files
from jax_graphenc.compiler.prelude import PRELUDE
from jax_graphenc.compiler.process import run
from jax_graphenc.compiler.shared_memory import hides_shared, rewrite_shared
from jax_graphenc.compiler.source import (
    Image,
    Source,
    folder_digest,
    split_options,
)
from jax_graphenc.compiler.static_shared import shared_memory_error
from jax_graphenc.signature.parse import list_kernels
from jax_graphenc.signature.resolve import split_template

_INCLUDE = Path(__file__).parent.parent / "include"
_HEADERS = (_INCLUDE / "host", _INCLUDE / "abi")
# Headers of libraries for the host, behind the user's own.
_HOST_LIBRARIES = _INCLUDE / "host_libraries"

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
    # Values that a GPU computes otherwise: include/host/jge_conversions.h.
    *("-fsanitize=float-cast-overflow,shift-exponent", "-DJGE_CHECK_CONVERSIONS"),
    *("-Wl,--wrap=memcpy", "-Wl,--wrap=memmove", "-Wl,--wrap=memset"),
)


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
    return f"{PRELUDE} {folder_digest(*_HEADERS, _HOST_LIBRARIES)}"


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
    return _first(source, expressions, checked)[0]


def compiled_text(source: Source, expressions: Sequence[str], *, checked: bool = False) -> str:
    """The text of the attempt that compiles; raises as `compile_shared_object` does."""
    _, attempt = _first(source, expressions, checked)
    return with_remark(_translation_unit(attempt.source, expressions, checked), attempt)


def _first(source: Source, expressions: Sequence[str], checked: bool) -> tuple[Image, Attempt]:
    def compile(attempt: Attempt) -> Image:
        return _compile(attempt, expressions, checked)

    return compile_first(source, compile, tells_host_functions=False)


def _compile(attempt: Attempt, expressions: Sequence[str], checked: bool) -> Image:
    source = attempt.source
    command = find_compiler()
    version = version_of(command)
    with tempfile.TemporaryDirectory(prefix="jax_graphenc_") as name:
        folder = Path(name)

        def compile_unit(*more: str) -> str:
            arguments = [*command, *_options(source, version, folder, checked), "kernel.cc", *more]
            try:
                log, status = run(arguments, cwd=folder)
            except subprocess.TimeoutExpired as timeout:
                raise compile_error(
                    source, expressions, "cpu", version, f"it took longer than {timeout.timeout} s"
                ) from timeout
            if status != 0:
                raise _error(source, expressions, version, log)
            return log

        for header, contents in attempt.headers.items():
            path = folder / header
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(contents, "utf-8", "surrogateescape")
        unit = folder / "kernel.cc"
        unit.write_text(
            _translation_unit(source, expressions, checked),
            encoding="utf-8",
            errors="surrogateescape",
        )
        dependencies = ("-MD", "-MF", "kernel.d")
        if _hides_shared(attempt):
            compile_unit("-E", "-D__shared__=__shared__", *dependencies, "-o", "kernel.ii")
            preprocessed = (folder / "kernel.ii").read_text("utf-8", "surrogateescape")
            unit.write_text(_rewritten(preprocessed, checked), "utf-8", "surrogateescape")
            log = compile_unit("-o", "kernel.so")
        else:
            log = compile_unit(*dependencies, "-o", "kernel.so")
        data = (folder / "kernel.so").read_bytes()
        if too_much := shared_memory_error(source, data, checked):
            raise compile_error(source, expressions, "cpu", version, too_much)
        read = _dependencies((folder / "kernel.d").read_text(errors="surrogateescape"))
        others = (folder, *_HEADERS, _HOST_LIBRARIES, *_system_folders(command))
        files = users_files(read, source, folder, others)
        # The copies stand for files whose states a reading of the source tells.
        told = None if attempt.headers else files
        return Image(data, read_entries(data, folder), log.strip(), told)


def _dependencies(rule: str) -> list[str]:
    """The files in a rule of a makefile, as compilers write it: `kernel.so: kernel.cc a.h`."""
    names = re.findall(r"(?:\\[^\n]|[^\s\\])+", rule.replace("\\\n", " ").partition(": ")[2])
    return [re.sub(r"\\([ #])", r"\1", name).replace("$$", "$") for name in names]


def _system_folders(command: tuple[str, ...]) -> list[Path]:
    """Where a compiler's own headers are, as far as they are not to be read for each key."""
    prefix = Path(os.path.realpath(command[0])).parent.parent
    machine = f"{platform.machine()}-*"
    return [Path("/usr/include"), Path("/usr/lib"), prefix / "lib", *prefix.glob(machine)]


def _translation_unit(source: Source, expressions: Sequence[str], checked: bool = False) -> str:
    """Returns the headers, the source under its own name, and the table of its kernels."""
    rows = "".join(
        f"jge_row<decltype(&{expression}), &{expression}>({_string_literal(expression)}),\n"
        for expression in expressions
    )
    return (
        '#include "jge_host.h"\n'
        '#ifdef JGE_CHECK_CONVERSIONS\n#include "jge_conversions.h"\n#endif\n'
        f"{PRELUDE}"
        f"{source.macro_directives}#include <assert.h>\n{_USERS}{source.include_directives}"
        f"{source.line_directive}{rewrite_shared(source.text, checked)}\n{_USERS}"
        f'#line 1 "{_LAUNCHER}"\n'
        f"static const JgeHostKernel jge_kernels[] = {{\n{rows}}};\n"
        "const JgeHostImage jge_host_image = {\n"
        f"    JGE_HOST_IMAGE_ABI, {len(expressions)}, jge_kernels, JGE_IS_CHECKED}};\n"
    )


_LAUNCHER = "<launcher>"
_USERS = "#pragma jax_graphenc_users_source\n"  # before it and behind it


def _hides_shared(attempt: Attempt) -> bool:
    source = attempt.source
    included = [Path(path).read_text(errors="replace") for path in find_includes(source)]
    texts = (source.macro_directives, *included, *attempt.headers.values())
    return hides_shared(source.text, texts)


def _rewritten(preprocessed: str, checked: bool) -> str:
    """A translation unit whose macros and included files are seen by `rewrite_shared`."""
    before, users, behind = preprocessed.split(_USERS)
    storage = "static" if checked else "thread_local"
    return f"{before}#define __shared__ {storage}\n{rewrite_shared(users, checked)}{behind}"


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
    options += [f"-I{_HOST_LIBRARIES}", f"-idirafter{_HOST_LIBRARIES / 'last'}", f"-I{folder}"]
    return [*options, "-iquote", str(source.base)]


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
    return compile_error(source, expressions, "cpu", version, _at_kernel(source, expressions, log))


def _at_kernel(source: Source, expressions: Sequence[str], log: str) -> str:
    """What our headers assert of a kernel, at its line in the source, or else the log."""
    asserted = _ASSERTED.search(log)
    row = _ANY_ROW.search(log)
    if asserted is None or row is None or not asserted["file"].startswith(str(_INCLUDE)):
        return log
    name = split_template(expressions[int(row[1]) - 2])[0].removeprefix("::")
    try:
        kernels = list_kernels(
            source.text,
            defines=dict(source.defines),
            filename=source.filename,
            line=source.line,
        )
    except ValueError:
        return log
    line = next((k.line for k in kernels if k.name.endswith(name)), None)
    text = asserted["text"]
    if text.startswith("not a kernel"):
        text = "a __global__ function must have a void return type"
    return log if line is None else f"{source.filename}:{line}: error: {name}: {text}"


_ASSERTED = re.compile(
    r"^(?P<file>[^\n]+?):\d+:\d+: error: static assertion failed(?: due to [^\n]*?)?: "
    r"(?P<text>[^\n]+)$",
    re.MULTILINE,
)
_ANY_ROW = re.compile(rf"^{_LAUNCHER}:(\d+):", re.MULTILINE)
_ROW = re.compile(rf"^{_LAUNCHER}:(\d+):\d+: error: ", re.MULTILINE)
_UNKNOWN = re.compile(
    r"not declared|undeclared|is not a member|no member named|unresolved overloaded|overloaded "
    r"function|no matches|does not refer|expected primary-expression|cannot resolve"
)

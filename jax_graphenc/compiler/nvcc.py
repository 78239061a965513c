"""CUDA C++ to cubin or PTX, by nvcc, for what NVRTC cannot compile."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jax_graphenc.compiler.demangle import TYPE_PROBE, demangle, parameter_types
from jax_graphenc.compiler.diagnostics import (
    UnknownKernelError,
    compile_error,
    errors,
    with_places,
)
from jax_graphenc.compiler.includes import users_files
from jax_graphenc.compiler.prelude import PRELUDE
from jax_graphenc.compiler.process import run
from jax_graphenc.compiler.ptx import parameter_sizes
from jax_graphenc.compiler.source import Entry, Image, Source, split_options

_TABLE = "<kernels>"


def find() -> Path | None:
    """Finds nvcc: in `CUDA_HOME` or `CUDA_PATH`, on the PATH, or where toolkits are installed."""
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    places = [f"{home}/bin" for home in homes if home]
    for place in (*places, None, "/usr/local/cuda/bin"):
        if path := shutil.which("nvcc", path=place):
            return Path(path).absolute()
    return None


def identity() -> str:
    """Says which nvcc there is, if any, without running it: part of a cache key."""
    path = find()
    if path is None:
        return "no nvcc"
    real = path.resolve()
    return f"nvcc {path} {real} {real.stat().st_mtime_ns}"


@functools.cache
def version_of(path: Path) -> str:
    """Returns nvcc's name and version; of one that does not run, the name."""
    try:
        output, _ = run([str(path), "--version"], cwd=None)
    except OSError:  # which compiling with it reports
        output = ""
    found = re.search(r"release (\d+\.\d+)", output)
    return f"nvcc {found[1]}" if found else "nvcc"


def compile_image(source: Source, expressions: Sequence[str], target: str) -> Image:
    """Compiles a source as `nvrtc.compile_image` does; nvcc must be there.

    Raises:
        KernelCompileError: The source does not compile.
        UnknownKernelError: One of `expressions` is not in it.
    """
    path = find()
    assert path is not None
    version = version_of(path)
    virtual = target.startswith("compute_")
    with tempfile.TemporaryDirectory(prefix="jax_graphenc_") as name:
        folder = Path(name)
        (folder / "kernel.cu").write_text(
            translation_unit(source, expressions), encoding="utf-8", errors="surrogateescape"
        )
        output = "kernel.ptx" if virtual else "kernel.cubin"
        links, options = _linked(_options(source, target), folder)
        arguments = [str(path), *options, "kernel.cu", "-o", output]
        try:
            log, status = run(arguments, cwd=folder)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise compile_error(source, expressions, target, version, str(error)) from error
        log = with_places(log.strip()).replace(f"/{source.filename}", source.filename)
        for link, place in links.items():
            log = log.replace(f"{link}/", f"{place}/")
        if status != 0:
            raise _error(source, expressions, target, version, log)
        ptx = (folder / "kernel.ptx").read_text(errors="replace")
        symbols, types = (_table(ptx, table) for table in ("__jge_symbols", "__jge_types"))
        entries = tuple(
            Entry(expression, symbol, parameter_types(demangle(seen)), parameter_sizes(ptx, symbol))
            for expression, symbol, seen in zip(expressions, symbols, types, strict=True)
        )
        return Image(
            (folder / output).read_bytes(), entries, log, _files(source, folder, path, links)
        )


def _linked(options: list[str], folder: Path) -> tuple[dict[str, str], list[str]]:
    """Links to include folders with names that nvcc takes apart, such as `a"b`; other options."""
    links: dict[str, str] = {}
    given = []
    for option in options:
        if option.startswith("-I") and re.search(r"[^\w./+-]", option):
            link = f"include{len(links)}"
            (folder / link).symlink_to(option.removeprefix("-I"))
            links[link] = option.removeprefix("-I")
            option = f"-I{link}"
        given.append(option)
    return links, given


def _files(source: Source, folder: Path, compiler: Path, links: dict[str, str]) -> tuple[str, ...]:
    """The user's files that the pass for the device has read, of which its output has marks."""
    marks = (
        mark
        for output in folder.glob("*.ii")
        for mark in re.findall(
            r'^# \d+ "((?:[^"\\\n]|\\.)*)"',
            output.read_text(errors="surrogateescape"),
            re.MULTILINE,
        )
    )
    read = []
    for mark in marks:
        link, slash, name = re.sub(r"\\(.)", r"\1", mark).partition("/")
        read.append(f"{links.get(link, link)}{slash}{name}")
    # The toolkit's folder is often a link, whose name nvcc gives to its headers.
    toolkits = (compiler.parent.parent, compiler.resolve().parent.parent)
    others = (folder, *toolkits, "/usr/include", "/usr/lib")
    return tuple(f for f in users_files(read, source, folder, others) if f != source.filename)


def translation_unit(source: Source, expressions: Sequence[str]) -> str:
    """The source, and two tables that PTX shows: the kernels' symbols, and their types."""
    # nvcc puts the working folder, whose name is random, before a name that does not begin so.
    rooted = replace(source, filename=f"/{source.filename.removeprefix('/')}")
    rows = "".join(f"(void*)&{expression},\n" for expression in expressions)
    probes = "".join(f"&__jge_type_of<decltype(&{expression})>,\n" for expression in expressions)
    return (
        f"{TYPE_PROBE}{PRELUDE}{source.macro_directives}{source.include_directives}"
        f"{rooted.line_directive}{source.text}\n"
        f'#line 1 "{_TABLE}"\n__device__ void* __jge_symbols[] = {{\n{rows}}};\n'
        f"__device__ void* __jge_types[] = {{\n{probes}}};\n"
    )


def _options(source: Source, target: str) -> list[str]:
    given = list(split_options(source.options))
    # PTX is kept beside the cubin.
    options = [f"-arch={target}", "--keep", *([] if source.has_quotes else ["-lineinfo"])]
    options.append("-ptx" if target.startswith("compute_") else "-cubin")
    if not any(flag == "-std=" for flag, _ in given):
        options.append("-std=c++17")
    for flag, value in given:
        if flag == "-I":
            options.append(flag + os.path.abspath(value))
        elif flag not in ("-D", "-U"):
            options.append(flag + value)
    return [*options, f"-I{source.base}"]


def _table(ptx: str, name: str) -> list[str]:
    """The symbols in a table of pointers."""
    found = re.search(rf"\b{name}\[\d+\] = \{{([^}}]*)\}}", ptx)
    if found is None:
        raise RuntimeError(f"nvcc's PTX has no table {name}")
    return re.findall(r"\w+", found[1].replace("generic", ""))


def _error(
    source: Source, expressions: Sequence[str], target: str, version: str, log: str
) -> Exception:
    found = errors(log)
    if found and found[0].file == _TABLE:
        # One line per expression, after the table's own.
        at = found[0].line - 2
        name = expressions[at] if 0 <= at < len(expressions) else ", ".join(expressions)
        return UnknownKernelError(
            f'"{name}" does not name one kernel in {source.filename} ({version}: {found[0].text})',
            log,
        )
    return compile_error(source, expressions, target, version, log)

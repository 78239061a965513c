"""Compilers' logs as messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jax_graphenc.base.errors import KernelCompileError, UnsupportedOnCpuError
from jax_graphenc.compiler.encoding import why_not_utf8
from jax_graphenc.compiler.source import Source


class UnknownKernelError(ValueError):
    """A kernel's name is not in its source. `log` is what the compiler said."""

    def __init__(self, message: str, log: str = "") -> None:
        """Keeps the compiler's `log` beside the `message`."""
        super().__init__(message)
        self.log = log


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error of a log: its file and line, its column where known (from 1), what it says."""

    file: str
    line: int
    column: int | None
    text: str


# file:12:5: error: text
_ERROR = re.compile(
    r"^(?P<file>[^\n]+?):(?P<line>\d+)(?::(?P<column>\d+))?"
    r": (?:(?:fatal |catastrophic )?[Ee]rror)(?: #\S+)?: (?P<text>.*)$",
    re.MULTILINE,
)


def errors(log: str) -> list[Diagnostic]:
    """Finds the errors of a log, in its order."""
    return [
        Diagnostic(
            match["file"],
            int(match["line"]),
            int(match["column"]) if match["column"] else None,
            match["text"],
        )
        for match in _ERROR.finditer(log)
    ]


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


# What the CPU cannot do, and the sentence that says so: a pattern for the user's line or the error.
_UNSUPPORTED = tuple(
    (re.compile(pattern), sentence)
    for pattern, sentence in (
        (r"\bgrid\w*\.sync\b",
         "{}() is not supported on the CPU: blocks do not wait for each other"),
        (r"\b(?:multi_grid|cluster)_group\b|\bthis_(?:multi_grid|cluster)\b|\b__cluster_\w+",
         "groups of blocks ({}) are not supported on the CPU"),
        (r"\bthread_group\b",
         "groups of a kind known at run time ({}) are not supported on the CPU"),
        (r"\b(?:__)?asm(?:__)?\b(?=\s*(?:\(|volatile\b|__volatile__\b))",
         "inline PTX ({}) runs on NVIDIA GPUs only"),
        (r"\b(?:tex|surf)[123]D\w*|\bcudaTextureObject_t\b|\bcudaSurfaceObject_t\b",
         "textures and surfaces ({}) are not supported on the CPU"),
        (r"\bwmma\b|\bmma\.h\b", "tensor core operations ({}) are not supported on the CPU"),
        (r"\bcub\b|\bcuda::|\bcuda/|\bthrust\b", "{} is not available on the CPU"),
        (r"\b__nv_cvt_\w+|\b__nv_fp8\w*", "not all of 8-bit floats ({}) is supported on the CPU"),
        (r"\bcuda_fp[46]\.h\b|\b__nv_fp[46]\w*",
         "4-bit and 6-bit floats ({}) are not supported on the CPU"),
        (r"\bcurand\w*", "cuRAND ({}) is not available on the CPU"),
        (r"\bcutlass\b|\bcute\b", "{} is not available on the CPU"),
        (r"\bblock_tile_memory\b",
         "tiles of more than one warp ({}) are not supported on the CPU"),
        (r"\b__is(?:Constant|GridConstant|ClusterShared|CtaShared)\b",
         "{}() is not supported on the CPU: there are no such address spaces"),
        (r"\bcuda_(?:pipeline|awbarrier)\w*|\w*mbarrier\w*|\b__pipeline_\w+|\bmemcpy_async\b"
         r"|\bCUtensorMap\b", "asynchronous copies ({}) run on NVIDIA GPUs only"),
        (r"\b__(?:f(?:add|sub|mul|div|maf|rcp|sqrt)|d(?:add|sub|mul|div|rcp|sqrt)|fma)f?_r[zud]\b",
         "{}() is not supported on the CPU: there is no directed rounding"),
        (r"<<<", "a kernel that launches kernels ({}) is not supported on the CPU"),
        # What begins so is the compilers', not the user's.
        (r"(?<=')__\w+(?=' was not declared)|(?<=undeclared identifier ')__\w+",
         "{} is not available on the CPU"),
        (r"\b(?:sm_\d+_\w+|cuda\w*|cooperative_groups/[\w/]+|nv/\w+)(?:\.h)?(?=: No such file)"
         r"|(?<=')(?:sm_\d+_|cuda|cooperative_groups/|nv/)[\w/]*(?:\.h)?(?=' file not found)",
         "{} is not available on the CPU"),
    )
)  # fmt: skip
_INSTEAD = "pass reference= (the same function in jax.numpy) to use on the CPU, or run on a GPU"


def unsupported_on_cpu(line: str, error: str) -> str | None:
    """Explains an error by the construct that caused it, or returns None.

    Looks at the user's line first, then at what the compiler said of it: a macro may hide a name
    from either.
    """
    for text in (line, error):
        for pattern, sentence in _UNSUPPORTED:
            if match := pattern.search(text):
                return f"{sentence.format(match[0])}; {_INSTEAD}"
    return None


def _excerpt(source: Source, error: Diagnostic) -> str | None:
    """Shows the user's line under an error with a caret, or returns None if it is elsewhere."""
    lines = source.text.split("\n")
    index = error.line - source.line
    if error.file != source.filename or not 0 <= index < len(lines):
        return None
    line = lines[index].rstrip()
    column = error.column or len(line) - len(line.lstrip()) + 1
    caret = "".join(c if c == "\t" else " " for c in line[: column - 1])
    return f"    {line}\n    {caret}^"


def compile_error(
    source: Source, expressions: Sequence[str], target: str, compiler: str, log: str
) -> KernelCompileError:
    """Makes the exception for a source that does not compile.

    Args:
        source: What was compiled.
        expressions: The kernels asked for.
        target: `"cpu"` or an architecture.
        compiler: Name and version of the compiler.
        log: What it said.
    """
    kernels = ", ".join(f'"{e}"' for e in expressions) or "a source without kernels"
    parts = [f"{kernels} in {source.filename} does not compile for {target} ({compiler}):"]
    explained: set[str] = set()
    if target == "cpu":
        # Each construct once, at its first line.
        lines = source.text.split("\n")
        for error in errors(log):
            index = error.line - source.line
            inside = error.file == source.filename and 0 <= index < len(lines)
            why = unsupported_on_cpu(lines[index] if inside else "", error.text)
            if why is not None and why not in explained:
                explained.add(why)
                parts.append(f"{error.file}:{error.line}: {why}")
    parts.append(_with_excerpt(source, log.strip()) or "The compiler said nothing.")
    kind = UnsupportedOnCpuError if explained else KernelCompileError
    return kind("\n".join(parts), log)


def _with_excerpt(source: Source, log: str) -> str:
    """Puts the offending line under the first error, unless the log shows it already."""
    match = _ERROR.search(log)
    if match is None:
        return log
    excerpt = _excerpt(source, errors(match[0])[0])
    following = log[match.end() :].split("\n", 3)[1:3]
    shown = any(line.strip(" |~") == "^" or line.lstrip(" |").startswith("^") for line in following)
    if excerpt is None or shown:
        return log
    return f"{log[: match.end()]}\n{excerpt}{log[match.end() :]}"


def with_encodings(error: KernelCompileError, files: Iterable[str]) -> KernelCompileError:
    """The error, and which of the files that it speaks of is no UTF-8."""
    for path in files:
        try:
            why = why_not_utf8(path, Path(path).read_bytes())
        except OSError:
            continue
        # A macro's value may be wrong in a file that the compiler does not name.
        spoken_of = path in error.log or re.search(r"\bstray\b|unrecognized token", error.log)
        if why is not None and spoken_of:
            error = type(error)(f"{error}\n{why}", error.log)
    return error


def relocated(
    error: KernelCompileError | UnknownKernelError, compiled: Source, source: Source
) -> KernelCompileError | UnknownKernelError:
    """An error of a source that was compiled under another name, in terms of the user's file."""
    name = re.escape(compiled.filename)
    place = re.compile(
        rf"{name}:(?P<line>\d+)|{name}(?=: In )|(?<=\bin ){name}|(?<=\bof \"){name}(?=\")"
    )

    def told(match: re.Match[str]) -> str:
        if match["line"] is None:
            return source.filename
        return f"{source.filename}:{int(match['line']) - compiled.line + source.line}"

    return type(error)(place.sub(told, str(error)), place.sub(told, error.log))

"""What compilers are given of a source that may hold host code: one attempt after another.

First the source as it is. Then, for a compiler that tells host from device functions, the same with
unannotated functions as device functions. Then the source without its host code (`host_code.py`),
and at last the user's files that it includes without theirs, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from jax_graphenc.base.errors import KernelCompileError
from jax_graphenc.compiler.host_code import Macros, Part, leave_out_host_code, read_macros
from jax_graphenc.compiler.includes import find_includes, resolve
from jax_graphenc.compiler.source import Image, Source

# Where compilers find the copies of the user's files; no file of a user's is there.
_COPIES = "jge_without_host_code"
_INCLUDE = re.compile(
    r"^(?P<directive>[ \t]*#[ \t]*include[ \t]*)(?P<open>[\"<])(?P<name>[^\">\n]+)[\">]",
    re.MULTILINE,
)
# What NVRTC says of a function that a kernel calls and that is not annotated.
_UNANNOTATED = re.compile(r"-default-device|__host__ (?:function|variable)|execution space")
_MANY = 8


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part of a source that was left out, or kept since its extent could not be told.

    Attributes:
        part: Its name and line.
        file: The file, as errors call it.
    """

    part: Part
    file: str

    def __str__(self) -> str:
        """As in a message."""
        return f"`{self.part.name}` ({self.file}:{self.part.line})"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a compiler is given.

    Attributes:
        source: The source, as it is or without host code.
        default_device: Whether unannotated functions are device functions.
        headers: Files that stand for files of the user's, by the names in the directives.
        parts: What was left out.
    """

    source: Source
    default_device: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[LeftOut, ...] = ()


def compile_first(
    source: Source, compile: Callable[[Attempt], Image], *, tells_host_functions: bool
) -> tuple[Image, Attempt]:
    """Compiles the first attempt that does.

    Args:
        source: The source.
        compile: Compiles an attempt; raises what a compiler raises.
        tells_host_functions: Whether the compiler refuses unannotated functions in device code.

    Raises:
        KernelCompileError: None compiles. The error is that of the source without its host code,
            where it has any: what is wrong there concerns kernels.
    """
    attempt = Attempt(source)
    try:
        return compile(attempt), attempt
    except KernelCompileError as error:
        first = error
    last, told = attempt, first
    for attempt in _further(source, first.log, tells_host_functions):
        try:
            return compile(attempt), attempt
        except KernelCompileError as error:
            last, told = attempt, error
    if not last.parts:
        raise told
    # What went wrong first says whether another compiler may do better.
    raise _told(told, last, f"{first.log}\n{told.log}")


def with_remark(text: str, attempt: Attempt) -> str:
    """A text with a comment before it that says what was left out."""
    out = [left for left in attempt.parts if not left.part.kept]
    return "".join(f"// Left out as host code: {left}\n" for left in out) + text


def _further(source: Source, log: str, tells_host_functions: bool) -> Iterator[Attempt]:
    texts = {
        path: Path(path).read_text("utf-8-sig", "surrogateescape") for path in find_includes(source)
    }
    macros = read_macros((source.macro_directives, source.text, *texts.values()))
    main = leave_out_host_code(source.text, macros)
    # No compiler of device code makes a device function of one that launches.
    launches = re.search(r"<<\s*<", source.text) and main.text != source.text
    if tells_host_functions and not launches and _UNANNOTATED.search(log):
        yield Attempt(source, default_device=True)
    parts = tuple(
        LeftOut(replace(part, line=part.line + source.line - 1), source.filename)
        for part in main.parts
    )
    new = replace(source, text=main.text)
    if main.text != source.text:
        yield Attempt(new, True, {}, parts)
    # Many libraries of headers alone are for devices, too, and are better left as they are.
    yield from _with_copies(new, parts, texts, macros)


def _with_copies(
    source: Source, parts: tuple[LeftOut, ...], texts: Mapping[str, str], macros: Macros
) -> Iterator[Attempt]:
    """The source with copies of the user's files that it includes without host code, if any has."""
    copies = {}
    for path, text in texts.items():
        new = leave_out_host_code(text, macros)
        parts += tuple(LeftOut(part, path) for part in new.parts)
        copies[os.path.realpath(path)] = _Copy(path, new.text, new.text != text)
    names = {
        real: f"{_COPIES}/{i}/{Path(copies[real].path).name}"
        for i, real in enumerate(_including(source, copies))
    }
    if not names:
        return
    headers = {}
    for real, name in names.items():
        copy = copies[real]
        line = replace(source, filename=copy.path, line=1).line_directive
        headers[name] = line + _redirected(copy.text, source, Path(copy.path).parent, names)
    text = _redirected(source.text, source, source.base, names)
    yield Attempt(replace(source, text=text), True, headers, parts)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A file of the user's: its path, its text without host code, and whether that is another."""

    path: str
    text: str
    differs: bool


def _including(source: Source, copies: Mapping[str, _Copy]) -> list[str]:
    """The files that differ, and those that include one of them, directly or not."""
    includes = {
        real: {
            os.path.realpath(path)
            for match in _INCLUDE.finditer(copy.text)
            if (path := _resolve(match, source, Path(copy.path).parent)) is not None
        }
        for real, copy in copies.items()
    }
    found = {real for real, copy in copies.items() if copy.differs}
    while more := {real for real in includes if includes[real] & found} - found:
        found |= more
    return sorted(found)


def _resolve(match: re.Match[str], source: Source, folder: Path) -> str | None:
    return resolve(source, folder, match["name"], quoted=match["open"] == '"')


def _redirected(text: str, source: Source, folder: Path, names: Mapping[str, str]) -> str:
    """A text whose directives name the copies of the user's files, or the files themselves.

    A copy stands in another folder than its file.
    """

    def name_of(match: re.Match[str]) -> str:
        path = _resolve(match, source, folder)
        if path is None:
            return match[0]
        copy = names.get(os.path.realpath(path))
        return match["directive"] + (f'"{path}"' if copy is None else f"<{copy}>")

    return _INCLUDE.sub(name_of, text)


_MISSING = re.compile(
    r"undefined reference to [`'](?P<spelled>[^'(]+)|Unresolved extern function '(?P<mangled>\w+)'"
)


def _is_missing(name: str, match: re.Match[str]) -> bool:
    """Whether a linker misses a function of this name."""
    if spelled := match["spelled"]:
        return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", spelled) is not None
    return _names(match["mangled"], name)


def _names(symbol: str, name: str) -> bool:
    """Whether a symbol is that of a function of this name."""
    return symbol == name or f"{len(name)}{name}" in symbol


def left_out_among(symbols: Iterable[str], attempt: Attempt) -> list[str]:
    """Those of some symbols that are of functions whose bodies were left out."""
    names = {left.part.name.rpartition("::")[2] for left in attempt.parts if not left.part.kept}
    return [symbol for symbol in symbols if any(_names(symbol, name) for name in names)]


def _told(error: KernelCompileError, attempt: Attempt, log: str) -> KernelCompileError:
    """An error of a source without host code, with what a reader has to know of that."""
    out = [left for left in attempt.parts if not left.part.kept]
    missing = list(_MISSING.finditer(error.log))
    needed = [
        f"{left.file}:{left.part.line}: `{left.part.name}` is a host function, and a kernel calls "
        "it: put __device__ before it"
        for left in out
        if any(_is_missing(left.part.name.rpartition("::")[2], match) for match in missing)
    ]
    names = ", ".join(map(str, out[:_MANY])) + (", ..." if len(out) > _MANY else "")
    notes = [
        *needed,
        f"This is of the source without its host code, which was left out: {names}.",
    ]
    if kept := [left for left in attempt.parts if left.part.kept]:
        names = ", ".join(f"{left}, since {left.part.kept}" for left in kept[:_MANY])
        notes.append(f"What may be host code was kept: {names}.")
    # A linker's own words speak of files that are gone.
    said = str(error).partition("\n")[0] if needed else str(error)
    return type(error)("\n".join((said, *notes)), log)

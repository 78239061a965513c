"""Preprocessing without headers: this file's own `#define`s and `#if`s, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from io import StringIO
from typing import Any

# What the compilers of kernels define in their device pass, as far as it matters to a signature.
_PREDEFINED = {"__CUDACC__": "1", "__CUDA_ARCH__": "900", "__cplusplus": "202002L"}
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?:define|undef|if|ifdef|ifndef)\b", re.MULTILINE)
# Names the line that follows. A user's own #line must not be mistaken for it.
_LINE_MARK = "#pragma jax_graphenc_line"

# Comments and literals first, so that nothing inside them is taken for an attribute.
_NOISE = re.compile(
    rb"""
      (?P<comment> //[^\n]* | /\*.*?\*/ )
    | R"(?P<raw>[^\s()\\"]{0,16})\(.*?\)(?P=raw)"
    | "(?:\\.|[^"\\\n])*"
    | '(?:\\.|[^'\\\n])'
    | (?P<call> \b(?: __launch_bounds__ | __maxnreg__ | __cluster_dims__ | __block_size__
        | __align__ | __builtin_align__ | alignas | __attribute__ | __declspec )\s*\( )
    | (?P<word> \b(?: __grid_constant__ | __noinline__ | __forceinline__ | __inline__
        | __restrict__ | __restrict )\b )
    """,
    re.VERBOSE | re.DOTALL,
)


def blank(source: bytes, kinds: tuple[str, ...] = ("comment", "call", "word")) -> bytes:
    """The source with comments and attributes as spaces, every other byte where it was."""
    out = bytearray(source)
    for match in _NOISE.finditer(source):
        if match.lastgroup in kinds:
            end = (match["call"] and _closing(source, match.end())) or match.end()
            out[match.start() : end] = re.sub(rb"[^\n]", b" ", source[match.start() : end])
    return bytes(out)


def _closing(source: bytes, start: int) -> int | None:
    """The position after the parenthesis that closes the one before `start`."""
    depth = 1
    for match in re.compile(rb"[()]").finditer(source, start):
        depth += 1 if match[0] == b"(" else -1
        if not depth:
            return match.end()
    return None


def preprocess(source: str, defines: Mapping[str, str]) -> tuple[str, list[int]]:
    """Applies the source's own macros and conditions, as the device compiler would.

    Headers are not opened, so macros that they define stay as they are. Source without
    directives comes back unchanged.

    Returns:
      The text, and for each of its lines the 1-based line of `source` that it came from.
    """
    if not defines and not _DIRECTIVE.search(source):
        return source, list(range(1, source.count("\n") + 2))
    preprocessor = _preprocessor_class()()
    preprocessor.line_directive = _LINE_MARK
    for name, value in {**_PREDEFINED, **defines}.items():
        preprocessor.define(f"{name} {value}")
    text = StringIO()
    preprocessor.parse(source, "source")
    preprocessor.write(text)
    lines, line = [], 1
    for row in text.getvalue().split("\n"):
        lines.append(line)
        line = int(row.split()[2]) if row.startswith(_LINE_MARK) else line + 1
    return text.getvalue(), lines


@cache
def _preprocessor_class() -> Any:
    """The preprocessor of pcpp, made silent and kept from reading files."""
    import pcpp

    class Preprocessor(pcpp.Preprocessor):  # type: ignore[misc]
        def on_error(self, file: str, line: int, message: str) -> None:
            """Says nothing: the compiler will, and better."""

        def on_file_open(self, is_system_include: bool, path: str) -> Any:
            raise OSError(path)

        def on_include_not_found(self, *_: Any) -> Any:
            raise pcpp.OutputDirective(pcpp.Action.IgnoreAndPassThrough)

        def on_directive_unknown(self, *_: Any) -> None:
            """Passes `#pragma`, `#error` and `#line` through."""

        def on_comment(self, token: Any) -> bool:
            return False

    return Preprocessor

"""page_runner.py: runs the Python of pages and holds what they show against what it prints.

A ``python`` block is run, each page from its top in a namespace of its own; where a page has the
comment ``<!-- each block runs by itself -->``, each block in one. What it prints is held against
what is shown: behind a ``print``, as a comment, or in an ``output`` block that follows; ``...``
stands for anything. ``python notest`` is other projects' code, which only is shown.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import doctest
import json
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
APART = "<!-- each block runs by itself -->"
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(text: str) -> list[tuple[str, int, str]]:
    """A page's blocks: what they are, the line before their first, and their text."""
    return [(m[1].strip(), text.count("\n", 0, m.start()) + 1, m[2]) for m in _FENCE.finditer(text)]


def run_page(page: Path, skip: Callable[[str], bool] = lambda code: False) -> list[str]:
    """Runs a page's Python.

    Returns:
        What is wrong: at most one error, which ends the page, and all outputs that differ.
    """
    wrong: list[str] = []
    content = page.read_text()
    namespace: dict[str, Any] = {"__name__": page.stem}
    printed = ""
    for kind, line, text in blocks(content):
        if kind == "output":
            wrong += _compare(f"{page}:{line}", text, printed)
        if kind != "python" or skip(text):
            continue
        if APART in content:
            namespace = {"__name__": page.stem}
        try:
            printed = ""
            for statement in ast.parse(text).body:
                shown = _comment_behind(statement, text)
                # So that tracebacks show the page's lines.
                ast.increment_lineno(statement, line)
                code = compile(ast.Module([statement], []), str(page), "exec")
                with captured() as read:
                    exec(code, namespace)
                if shown is None:
                    printed += read()
                else:
                    wrong += _compare(f"{page}:{statement.lineno}", shown, read())
        except Exception:
            return [*wrong, traceback.format_exc()]
    return wrong


def _comment_behind(statement: ast.stmt, text: str) -> str | None:
    """The comment on the last line of a call of ``print``."""
    match statement:
        case ast.Expr(ast.Call(ast.Name("print"))):
            rest = text.splitlines()[statement.end_lineno - 1].encode()[statement.end_col_offset :]
            comment = rest.decode().strip()
            return comment.removeprefix("#").strip() if comment.startswith("#") else None
    return None


def _compare(where: str, shown: str, printed: str) -> list[str]:
    shown, printed = f"{shown.strip()}\n", f"{printed.strip()}\n"
    if doctest.OutputChecker().check_output(shown, printed, _FLAGS):
        return []
    return [f"{where}: shown is\n{shown}printed was\n{printed}"]


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """What is printed inside, by Python and by C."""
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    before = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield lambda: text
        finally:
            sys.stdout.flush()
            flush(None)
            os.dup2(before, 1)
            os.close(before)
            file.seek(0)
            text = file.read().decode()


def main(report: str, *pages: str) -> None:
    """Runs pages in this process; writes what is wrong with each."""
    import jax

    import jax_graphenc as jge
    from jax_graphenc.base.options import current
    from jax_graphenc.compiler import fatbin, nvrtc_library

    try:
        nvrtc_library.version()
        fatbin._load()
        exporting = True
    except jge.CompilerNotFoundError:
        exporting = False
    options = {field.name: getattr(current(), field.name) for field in fields(current())}
    warnings.simplefilter("error", UserWarning)
    wrong = {}
    for page in map(Path, pages):
        # A page that speaks of the CPU is run there, also where there is a GPU.
        on_cpu = jax.default_device(jax.devices("cpu")[0] if "cpu" in page.stem else None)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), on_cpu:
            wrong[str(page)] = run_page(page, lambda code: "cuda_targets" in code and not exporting)
        jge.options(**options)
    Path(report).write_text(json.dumps(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])

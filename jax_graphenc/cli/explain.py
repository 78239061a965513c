"""``explain``: prints the report of ``jge.explain``."""

from __future__ import annotations

import argparse
import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax_graphenc as jge
from jax_graphenc.cli.console import columns
from jax_graphenc.cli.specs import argument, function
from jax_graphenc.devices.target import NoGpuError

_EXAMPLE = "example_arguments"
_REFUSALS = (
    jge.CompilerNotFoundError,
    jge.GraphBreakError,
    jge.KernelCompileError,
    jge.LaunchLimitError,
    NoGpuError,
)


def add_parser(subparsers: Any) -> None:
    """Adds the command's parser."""
    parser = subparsers.add_parser(
        "explain",
        help="what a function's kernels become: programs, graphs, edges, memory",
        description="Shows what a function's kernels become when it is lowered; runs nothing.",
        epilog="example: python -m jax_graphenc explain solver:step --shape 'f32[512,512]' f32 n=4",
    )
    parser.add_argument(
        "function",
        type=function,
        metavar="module:function",
        help="a function of a module, or of a file, as in examples/solver.py:step",
    )
    parser.add_argument(
        "--shape",
        nargs="+",
        default=None,
        type=argument,
        metavar="f32[512,512]",
        help="for each argument an array's dtype and shape, or a Python value; name=... for one by "
        f"keyword. Without it, the module's {_EXAMPLE}() gives the arguments, if there is one",
    )
    parser.add_argument("--platform", choices=("cpu", "cuda"), help="what it is lowered for")
    parser.add_argument(
        "--target",
        type=_targets,
        metavar="sm_90a",
        help="GPUs to compile for, here or not, as the option cuda_targets; implies cuda",
    )
    parser.add_argument("--full", action="store_true", help="leave out nothing that repeats")
    for format in ("dot", "svg"):
        written = functools.partial(_file, suffix=f".{format}")
        parser.add_argument(f"--{format}", type=written, metavar="FILE", help=f"a .{format} too")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the report and writes what is asked for; returns the exit status."""
    module, function = arguments.function
    positional, keywords = _given(arguments.shape, module)
    settings = {"cuda_targets": arguments.target} if arguments.target else {}
    platform = "cuda" if arguments.target else arguments.platform
    if wrong := _wrong_arguments(function, positional, keywords):
        print(wrong, file=sys.stderr)
        return 1
    try:
        with jge.options(**settings):
            told = jge.explain(function, *positional, platform=platform, **keywords)
    except _REFUSALS as error:  # any other is the function's own and shows its traceback
        print(error, file=sys.stderr)
        return 1
    print(told.text(width=columns(), full=arguments.full))
    try:
        if arguments.dot:
            arguments.dot.write_text(told.dot(full=arguments.full), encoding="utf-8")
        if arguments.svg:
            arguments.svg.write_text(told.svg(full=arguments.full), encoding="utf-8")
    except (OSError, ModuleNotFoundError) as error:  # no such folder, or no Graphviz
        print(error, file=sys.stderr)
        return 1
    return 0


def _given(shapes: Any, module: ModuleType) -> tuple[list[Any], dict[str, Any]]:
    if shapes is None:
        example: Any = getattr(module, _EXAMPLE, tuple)()
        return list(example if isinstance(example, tuple | list) else (example,)), {}
    positional = [value for name, value in shapes if name is None]
    return positional, {name: value for name, value in shapes if name is not None}


def _wrong_arguments(
    function: Callable[..., Any], positional: list[Any], keywords: dict[str, Any]
) -> str | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # C functions may have none
        return None
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        return (
            f"{error}: --shape gives the arguments of {getattr(function, '__name__', function)}"
            f"{signature}, or the module's {_EXAMPLE}()"
        )
    return None


def _file(text: str, suffix: str) -> Path:
    if not text.endswith(suffix):
        raise argparse.ArgumentTypeError(f"{text!r}: a name that ends in {suffix} is expected")
    return Path(text)


def _targets(text: str) -> str:
    try:
        with jge.options(cuda_targets=text):
            return text
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

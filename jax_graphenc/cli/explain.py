"""``explain``: what a function's kernels become, as ``jge.explain`` tells it."""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

import jax_graphenc as jge
from jax_graphenc.cli.console import columns
from jax_graphenc.devices.target import NoGpuError

_DTYPES = {
    "pred": "bool",
    "bf16": "bfloat16",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"c{bits}": f"complex{bits}" for bits in (64, 128)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
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
        type=_function,
        metavar="module:function",
        help="a function of a module, or of a file, as in examples/solver.py:step",
    )
    parser.add_argument(
        "--shape",
        nargs="+",
        default=None,
        type=_argument,
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
    except _REFUSALS as error:  # another one is the function's own, and comes with its traceback
        print(error, file=sys.stderr)
        return 1
    print(told.text(width=columns(), full=arguments.full))
    try:
        if arguments.dot:
            arguments.dot.write_text(told.dot(full=arguments.full), encoding="utf-8")
        if arguments.svg:
            arguments.svg.write_text(told.svg(full=arguments.full), encoding="utf-8")
    except (OSError, ModuleNotFoundError) as error:  # no such folder, no Graphviz
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
    except (TypeError, ValueError):  # some that are written in C have none
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


def _function(spec: str) -> tuple[ModuleType, Callable[..., Any]]:
    """``module:function`` or ``file.py:function``."""
    source, _, name = spec.rpartition(":")
    if not source or not name:
        raise argparse.ArgumentTypeError(f"{spec!r}: module:function is expected")
    module = _module(source)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise argparse.ArgumentTypeError(f"{source} has no {name}")
        value = getattr(value, part)
    if not callable(value):
        raise argparse.ArgumentTypeError(f"{name} of {source} is {value!r}, which is no function")
    return module, value


def _module(source: str) -> ModuleType:
    if not source.endswith(".py"):
        if source.startswith("."):
            raise argparse.ArgumentTypeError(f"{source!r}: a module or a file.py is expected")
        try:
            return importlib.import_module(source)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{source}.".startswith(f"{error.name}."):
                raise  # it is there, and what it imports is not
            raise argparse.ArgumentTypeError(f"there is no module {source}") from None
    if not Path(source).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {source}")
    spec = importlib.util.spec_from_file_location(Path(source).stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # as dataclasses and pickle want it
    spec.loader.exec_module(module)
    return module


def _argument(spec: str) -> tuple[str | None, Any]:
    """An argument, and its name if it is one by keyword."""
    name, equals, value = spec.rpartition("=")
    if equals and not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{spec!r}: name=value is expected")
    return name or None, _value(value)


def _value(spec: str) -> Any:
    found = re.fullmatch(r"([a-z]\w*)(?:\[([\d, ]*)\])?", spec)
    if found and (dtype := _dtype(found[1])) is not None:
        shape = tuple(int(size) for size in (found[2] or "").replace(" ", "").split(",") if size)
        return jax.ShapeDtypeStruct(shape, dtype)
    try:
        return ast.literal_eval(spec)
    except (ValueError, SyntaxError):
        raise argparse.ArgumentTypeError(
            f"{spec!r}: an array such as f32[512,512] or a Python value such as 4 is expected"
        ) from None


def _dtype(name: str) -> np.dtype[Any] | None:
    try:
        return jax.numpy.dtype(_DTYPES.get(name, name))  # numpy's names, and JAX's of narrow floats
    except TypeError:
        return None

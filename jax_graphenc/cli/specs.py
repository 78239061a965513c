"""Functions and arguments as words of a command line."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

_DTYPES = {
    "pred": "bool",
    "bf16": "bfloat16",
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"c{bits}": f"complex{bits}" for bits in (64, 128)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def function(spec: str) -> tuple[ModuleType, Callable[..., Any]]:
    """The module and function that ``module:function`` or ``file.py:function`` names."""
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
        raise argparse.ArgumentTypeError(
            f"{name} of {source} is {value!r}, which is not a function"
        )
    return module, value


def _module(source: str) -> ModuleType:
    if not source.endswith(".py"):
        if source.startswith("."):
            raise argparse.ArgumentTypeError(f"{source!r}: a module or a file.py is expected")
        try:
            return importlib.import_module(source)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{source}.".startswith(f"{error.name}."):
                raise  # the module exists, but not one that it imports
            raise argparse.ArgumentTypeError(f"there is no module {source}") from None
    if not Path(source).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {source}")
    spec = importlib.util.spec_from_file_location(Path(source).stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look there
    spec.loader.exec_module(module)
    return module


def argument(spec: str) -> tuple[str | None, Any]:
    """The name, if any, and the value of ``f32[3]``, ``4`` or ``name=4``."""
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
        return jax.numpy.dtype(_DTYPES.get(name, name))  # numpy's names, and JAX's narrow floats
    except TypeError:
        return None

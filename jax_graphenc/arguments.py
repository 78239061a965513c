"""What a kernel's caller may pass, and how it becomes bytes and shapes; errors say which."""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import numpy as np

from jax_graphenc.program import Dim3

# Limits that every CUDA device shares (CUDA C++ programming guide, table "Technical
# Specifications per Compute Capability"); those that differ are checked where the device is known.
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK: Dim3 = (1024, 1024, 64)
MAX_GRID: Dim3 = (2**31 - 1, 65535, 65535)


def dim3(value: Any, what: str, kernel: str) -> Dim3:
    """An int or a sequence of one to three ints as a ``dim3``; missing ones are 1.

    Raises:
        TypeError: for anything else, or a traced value.
        ValueError: for a negative number.
    """
    parts = value if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(parts) <= 3:
        raise TypeError(f"kernel '{kernel}': {what}={value!r} has {len(parts)} numbers, not 1 to 3")
    numbers = tuple(_integer(part, what, kernel, value) for part in parts)
    padded = (*numbers, 1, 1)[:3]
    return padded[0], padded[1], padded[2]


def _integer(part: Any, what: str, kernel: str, value: Any) -> int:
    if isinstance(part, jax.core.Tracer):
        raise TypeError(
            f"kernel '{kernel}': {what} is a traced value; a launch is fixed when the call is "
            "traced, so compute it from shapes or pass it through static_argnums"
        )
    if isinstance(part, bool) or not hasattr(part, "__index__"):
        raise TypeError(f"kernel '{kernel}': {what}={value!r} is not made of integers")
    number = int(part.__index__())
    if number < 0:
        raise ValueError(f"kernel '{kernel}': {what}={value!r} has a negative number")
    return number


def check_launch(grid: Dim3, block: Dim3, cluster: Dim3, kernel: str) -> None:
    """Refuses what no device can launch.

    Raises:
        ValueError: with the limit that is exceeded.
    """
    for what, dims, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        for axis, number, limit in zip("xyz", dims, limits, strict=True):
            if number > limit:
                raise ValueError(
                    f"kernel '{kernel}': {what}.{axis} is {number} in {what}={dims}; "
                    f"the limit is {limit}"
                )
    if 0 in block:
        raise ValueError(f"kernel '{kernel}': block={block} has no threads")
    if (threads := math.prod(block)) > MAX_THREADS_PER_BLOCK:
        raise ValueError(
            f"kernel '{kernel}': block={block} has {threads} threads; "
            f"the limit is {MAX_THREADS_PER_BLOCK}"
        )
    if 0 in cluster:
        raise ValueError(f"kernel '{kernel}': cluster={cluster} has no blocks")
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise ValueError(f"kernel '{kernel}': grid={grid} is not a multiple of cluster={cluster}")


def static_key(value: Any) -> Hashable:
    """A hashable stand-in that tells apart all that packs or prints differently (-0.0, 1, True).

    Raises:
        TypeError: for a value that has none.
    """
    if isinstance(value, float):
        return float, struct.pack("=d", value)
    if isinstance(value, complex):
        return complex, struct.pack("=dd", value.real, value.imag)
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if isinstance(value, tuple):
        return tuple(static_key(part) for part in value)
    if value is None or isinstance(value, bool | int | str | bytes):
        return type(value), value
    raise TypeError(f"{type(value).__name__} has no key")


def concrete(value: Any, name: str, kernel: str) -> Any:
    """A keyword argument as a Python or numpy scalar.

    Raises:
        TypeError: for a traced value, saying how to pass it by pointer, or for an array.
    """
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"kernel '{kernel}': '{name}' is passed by value, so it must be known when the call is "
            f"traced, and it is traced here ({value.aval}). Take it by pointer instead: declare "
            f"`const T* {name}`, read `*{name}` in the kernel, and pass it as an input; or make it "
            "a static argument (static_argnames)"
        )
    if isinstance(value, jax.Array | np.ndarray):
        if value.ndim:
            raise TypeError(
                f"kernel '{kernel}': '{name}' is passed by value and is an array of shape "
                f"{value.shape}; a scalar is expected"
            )
        return np.asarray(value)[()]
    return value


def pack(value: Any, dtype: np.dtype[Any] | None, name: str, declared: str, kernel: str) -> bytes:
    """The bytes of a by-value argument.

    Args:
        value: a Python or numpy scalar; a structured numpy scalar for a struct.
        dtype: what the kernel takes; ``None`` where only the compiler knows, which then holds the
            size against its own.
        name: the parameter's, for messages.
        declared: its C++ type, for messages.
        kernel: the kernel's name, for messages.

    Raises:
        TypeError: if the value is of another kind, or out of range.
    """
    where = f"kernel '{kernel}': '{name}' ({declared})"
    if dtype is None:
        if isinstance(value, np.generic):
            return value.tobytes()
        raise TypeError(
            f"{where} is of a type that is not declared in the source, so {value!r} has no known "
            "size: pass a numpy scalar of the right type, such as np.float32(...), or a "
            "structured numpy scalar for a struct"
        )
    scalar = np.asarray(value)
    # What is narrower in kind converts without loss of meaning: bool, integer, float, complex.
    order = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    given, wanted = order.get(_kind(scalar.dtype), 4), order[_kind(dtype)]
    if scalar.ndim or given > wanted:
        raise TypeError(f"{where} takes a {dtype} scalar; got {value!r}")
    if wanted == 1:
        info = np.iinfo(dtype)
        if not info.min <= int(scalar) <= info.max:
            raise TypeError(f"{where} holds {info.min} to {info.max}; got {value!r}")
    return scalar.astype(dtype).tobytes()


def _kind(dtype: np.dtype[Any]) -> str:
    # bfloat16 and the 8-bit floats are of numpy's kind "V".
    return "f" if jax.numpy.issubdtype(dtype, jax.numpy.floating) else dtype.kind


def as_results(shapes: Any, kernel: str) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
    """``out_shape`` as shapes and dtypes: anything with both, or a sequence of such.

    Raises:
        TypeError: for anything else.
    """
    many: Sequence[Any] = shapes if isinstance(shapes, tuple | list) else (shapes,)
    found = []
    for shape in many:
        if not hasattr(shape, "shape") or not hasattr(shape, "dtype"):
            raise TypeError(
                f"kernel '{kernel}': out_shape has {shape!r}, which has no shape and dtype; use "
                "jax.ShapeDtypeStruct(shape, dtype)"
            )
        found.append((tuple(int(n) for n in shape.shape), np.dtype(shape.dtype)))
    return tuple(found)

"""The shape of a launch: what a user may give, and what no device can do."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from jax_graphenc.base.shapes import Dim3

# Limits that every CUDA device shares (CUDA C++ programming guide, table "Technical
# Specifications per Compute Capability"); those that differ are checked where the device is known.
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK: Dim3 = (1024, 1024, 64)
MAX_GRID: Dim3 = (2**31 - 1, 65535, 65535)


def cdiv(a: int, b: int) -> int:
    """How many blocks of ``b`` cover ``a`` elements: ``a / b``, rounded up."""
    return -(-a // b)


def dim3(value: Any, what: str, kernel: str) -> Dim3:
    """An int, or a sequence or array of one to three, as a ``dim3``; missing ones are 1.

    Raises:
        TypeError: for anything else, or a traced value.
        ValueError: for a negative number.
    """
    many = isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    parts = tuple(value) if many else (value,)
    if not 1 <= len(parts) <= 3:
        raise TypeError(f"kernel '{kernel}': {what}={value!r} has {len(parts)} numbers, not 1 to 3")
    numbers = tuple(integer(part, what, kernel, value) for part in parts)
    padded = (*numbers, 1, 1)[:3]
    return padded[0], padded[1], padded[2]


def integer(part: Any, what: str, kernel: str, whole: Any = None) -> int:
    """An integer that is not negative; ``whole`` is what messages show instead of it.

    Raises:
        TypeError: for anything else, or a traced value.
        ValueError: for a negative number.
    """
    shown = f"{what}={(part if whole is None else whole)!r}"
    # A function of the launch is given the shape of a traced value instead of the value.
    if isinstance(part, jax.core.Tracer | jax.ShapeDtypeStruct):
        raise TypeError(
            f"kernel '{kernel}': {what} is a traced value; a launch is fixed when the call is "
            "traced, so compute it from shapes or pass it through static_argnums"
        )
    try:
        number = None if isinstance(part, bool) else int(part.__index__())
    except (AttributeError, TypeError):  # a numpy array has an __index__ that refuses
        number = None
    if number is None:
        expected = "is not an integer" if whole is None else "is not made of integers"
        raise TypeError(
            f"kernel '{kernel}': {shown} {expected}; jge.cdiv(a, b) divides and rounds up"
        )
    if number < 0:
        raise ValueError(f"kernel '{kernel}': {shown} has a negative number")
    return number


def check_launch(grid: Dim3, block: Dim3, cluster: Dim3, kernel: str) -> None:
    """Refuses what no device can launch.

    Raises:
        ValueError: with the limit that is exceeded.
    """
    shown = f"(grid={grid}, block={block}, cluster={cluster})"
    for what, dims, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        for axis, number, limit in zip("xyz", dims, limits, strict=True):
            if number > limit:
                raise ValueError(
                    f"kernel '{kernel}': {what}.{axis} is {number} in {what}={dims}; "
                    f"the limit is {limit} {shown}"
                )
    if 0 in block:
        raise ValueError(
            f"kernel '{kernel}': block={block} has no threads; at least 1 in each dimension is "
            "expected"
        )
    if (threads := math.prod(block)) > MAX_THREADS_PER_BLOCK:
        raise ValueError(
            f"kernel '{kernel}': block={block} has {threads} threads; "
            f"the limit is {MAX_THREADS_PER_BLOCK} {shown}"
        )
    if 0 in cluster:
        raise ValueError(
            f"kernel '{kernel}': cluster={cluster} has no blocks; at least 1 in each dimension is "
            "expected"
        )
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise ValueError(f"kernel '{kernel}': grid={grid} is not a multiple of cluster={cluster}")

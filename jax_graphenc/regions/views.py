"""Equations whose results are contiguous parts of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core

from jax_graphenc.regions.literals import Atom, is_scalar_literal

_SAME_BYTES = {"reshape", "squeeze", "expand_dims", "name", "pvary", "pcast"}

_VIEWS = _SAME_BYTES | {
    "broadcast_in_dim",
    "convert_element_type",
    "bitcast_convert_type",
    "transpose",
    "slice",
}


def view_offset(eqn: core.JaxprEqn) -> int | None:
    """Where in its operand, in bytes, an equation's result stands as it is; ``None`` if nowhere."""
    name, params = eqn.primitive.name, eqn.params
    if name not in _VIEWS:
        return None
    aval: Any = eqn.invars[0].aval
    out: Any = eqn.outvars[0].aval
    if name in _SAME_BYTES:
        return 0 if params.get("dimensions") is None or name != "reshape" else None
    if name == "broadcast_in_dim":
        # Without repetition, dimensions of one are all that it can add.
        return 0 if aval.shape and aval.size == out.size else None
    if name == "convert_element_type":
        return 0 if aval.dtype == out.dtype else None
    if name == "bitcast_convert_type":
        return 0 if aval.dtype.itemsize == out.dtype.itemsize else None
    if name == "transpose":
        moved = [axis for axis in params["permutation"] if aval.shape[axis] != 1]
        return 0 if moved == sorted(moved) else None
    if params["strides"] is not None and set(params["strides"]) != {1}:
        return None
    return _contiguous(aval, params["start_indices"], out.shape)


def _contiguous(aval: Any, start: Sequence[int], shape: Sequence[int]) -> int | None:
    offset, stride = 0, aval.dtype.itemsize
    partial = False  # an inner dimension is not taken whole
    for n, first, taken in zip(reversed(aval.shape), reversed(start), reversed(shape), strict=True):
        if partial and taken != 1:
            return None
        partial = partial or taken != n
        offset += first * stride
        stride *= n
    return offset


def static_slice(eqn: core.JaxprEqn, operands: Sequence[Atom]) -> core.JaxprEqn | None:
    """A dynamic slice whose indices are known, as a slice."""
    starts = operands[1:]
    if eqn.primitive.name != "dynamic_slice" or not all(map(is_scalar_literal, starts)):
        return None
    sizes = eqn.params["slice_sizes"]
    first = tuple(
        int(np.clip(int(at.val), 0, n - size))
        for at, n, size in zip(starts, operands[0].aval.shape, sizes, strict=True)
    )
    limit = tuple(a + n for a, n in zip(first, sizes, strict=True))
    params = {"start_indices": first, "limit_indices": limit, "strides": None}
    made: core.JaxprEqn = eqn.replace(
        primitive=core.primitives.slice_p, params=params, invars=[operands[0]]
    )
    return made

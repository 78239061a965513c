"""What an equation means to a program: a kernel, a view, a constant, a sum, or nothing.

Equations are told apart by the names of their primitives, which are stable across JAX's versions
where the objects move about.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend import core

Atom = Any
"""A ``jax.extend.core.Var`` or ``Literal``."""


class Kind(enum.Enum):
    """What a program does with an equation."""

    FOREIGN = "nothing: it is left to XLA"
    KERNEL = "launches a kernel"
    SUM = "adds two arrays"
    CONCATENATE = "puts arrays one after the other; of one, a copy"
    VIEW = "nothing: the result is a contiguous part of the operand"
    FILL = "fills memory with one value"


# What joins arrays, by the parameter that holds the axis.
_JOINS = {"concatenate": "dimension", "stack": "axis"}

_SAME_BYTES = {"reshape", "squeeze", "expand_dims", "name", "pvary", "pcast"}

# dtypes that the built-in sum takes, with the dtype that it adds and how many of these it has.
SUMMED: dict[str, tuple[str, int]] = {
    "float32": ("float32", 1),
    "float64": ("float64", 1),
    "complex64": ("float32", 2),
    "complex128": ("float64", 2),
}


def kind_of(eqn: core.JaxprEqn) -> Kind:
    """What a program does with an equation that is no call."""
    name = eqn.primitive.name
    aval: Any = eqn.outvars[0].aval if eqn.outvars else None
    invars: list[Any] = eqn.invars
    if name == "cuda_kernel":
        return Kind.KERNEL
    if eqn.effects or len(eqn.outvars) != 1:
        return Kind.FOREIGN
    if view_offset(eqn) is not None:
        return Kind.VIEW
    if name == "broadcast_in_dim" and is_scalar_literal(invars[0]):
        return Kind.FILL if pattern_of(invars[0].val, aval.dtype) else Kind.FOREIGN
    if name == "add_any" and str(aval.dtype) in SUMMED:
        return Kind.SUM
    if name == "copy" or (name in _JOINS and _is_leading(eqn, eqn.params[_JOINS[name]])):
        return Kind.CONCATENATE
    return Kind.FOREIGN


def _is_leading(eqn: core.JaxprEqn, axis: int) -> bool:
    """Whether pieces that are joined along an axis end up one after the other in memory."""
    aval: Any = eqn.outvars[0].aval
    return bool(math.prod(aval.shape[:axis]) == 1)


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


_VIEWS = _SAME_BYTES | {
    "broadcast_in_dim",
    "convert_element_type",
    "bitcast_convert_type",
    "transpose",
    "slice",
}


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


def pattern_of(value: Any, dtype: np.dtype[Any]) -> bytes | None:
    """The 1, 2 or 4 bytes that memory full of a value repeats; ``None`` if there are no such."""
    data = np.asarray(value).astype(dtype).tobytes()
    for size in (1, 2, 4):
        if len(data) % size == 0 and data == data[:size] * (len(data) // size):
            return data[:size]
    return None


def is_scalar_literal(atom: Atom) -> bool:
    """Whether an atom is a number that is written into the program."""
    return isinstance(atom, core.Literal) and np.ndim(atom.val) == 0


def key_of(atom: Atom) -> Any:
    """What tells atoms apart: constants are the same where they are the same object."""
    return id(atom.val) if isinstance(atom, core.Literal) else atom


def scalar_literal(value: Any, aval: Any) -> core.Literal:
    """A number as an atom of a given type."""
    return core.Literal(np.asarray(value).astype(aval.dtype)[()], aval)


# ---------------------------------------------------------------- arithmetic on loop counters


def _select(which: Any, *cases: Any) -> Any:
    return cases[int(which)]


def _rem(x: Any, y: Any) -> Any:
    return x if y == 0 and x.dtype.kind != "f" else np.fmod(x, y)


def _div(a: Any, b: Any) -> Any:
    """As XLA divides: integers towards zero."""
    if a.dtype.kind not in "iu":
        return a / b
    if b == 0:
        return None
    quotient = abs(int(a)) // abs(int(b))
    return np.asarray(-quotient if (a < 0) != (b < 0) else quotient).astype(a.dtype)[()]


_FOLDED: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "rem": _rem,
    "div": _div,
    "sign": np.sign,
    "clamp": lambda low, x, high: np.minimum(np.maximum(low, x), high),
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "select_n": _select,
    "convert_element_type": lambda x: x,
}


def fold(eqn: core.JaxprEqn, operands: Sequence[Atom]) -> core.Literal | None:
    """The result of scalar arithmetic on known numbers, such as ``i + 1`` in an unrolled loop."""
    function = _FOLDED.get(eqn.primitive.name)
    if function is None or eqn.effects or not all(map(is_scalar_literal, operands)):
        return None
    if any(np.asarray(x.val).dtype.kind not in "biuf" for x in operands):
        return None
    with np.errstate(all="ignore"):
        value = function(*(np.asarray(x.val).astype(x.aval.dtype)[()] for x in operands))
    aval: Any = eqn.outvars[0].aval
    if value is None:
        return None
    if np.asarray(value).dtype.kind == "f" and aval.dtype.kind in "iu":
        return None  # XLA saturates, numpy does not
    return scalar_literal(value, aval)


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

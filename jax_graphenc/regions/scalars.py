"""Arithmetic on numbers that are known when a region is lowered, with XLA's meaning.

The counter of an unrolled loop is such a number, and so is what is computed from it. An equation
folds or not by its primitive and its types alone, never by the numbers: so a loop's cost is known
before it is unrolled.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from jax_graphenc.regions.literals import Atom, is_scalar_literal, number, scalar_literal

_Table = Mapping[str, Callable[..., Any]]


def fold(eqn: core.JaxprEqn, operands: Sequence[Atom]) -> core.Literal | None:
    """The result of arithmetic on known numbers, such as ``i + 1`` in an unrolled loop.

    Returns:
        ``None`` for an operand that is no known number, and for an operation that does not fold.
    """
    if not all(map(is_scalar_literal, operands)):
        return None
    operation = _operation(eqn)
    if operation is None:
        return None
    with np.errstate(all="ignore"):
        return scalar_literal(operation(*map(number, operands)), eqn.outvars[0].aval)


def _operation(eqn: core.JaxprEqn) -> Callable[..., Any] | None:
    """From numbers of the operands' types to one of the result's."""
    name, params = eqn.primitive.name, eqn.params
    if eqn.effects or len(eqn.outvars) != 1 or not eqn.invars:
        return None
    avals: list[Any] = [v.aval for v in (*eqn.invars, *eqn.outvars)]
    if any(aval.shape or not _is_number(aval.dtype) for aval in avals):
        return None
    given, made = avals[-2].dtype, avals[-1].dtype
    if name in _SAME:
        return _same
    if name == "select_n":
        return _select
    if name == "convert_element_type":
        return lambda x: _convert(x, made)
    if name == "bitcast_convert_type":
        return (lambda x: x.view(made)) if given.itemsize == made.itemsize else None
    table = _integers(given) if given.kind in "biu" else _FLOATS
    function = table.get(name)
    if function is None or name not in _PARAMETER:
        return function
    parameter = params[_PARAMETER[name]]
    return lambda *operands: function(*operands, int(parameter))


# Results that are the operand.
_SAME = {"copy", "copy_p", "reshape", "broadcast_in_dim", "name"}

# The parameter that counts as one more operand.
_PARAMETER = {"integer_pow": "y", "round": "rounding_method"}


def _is_number(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and (dtype.kind in "biuf" or dtype == jnp.bfloat16)


def _same(x: Any) -> Any:
    return x


def _select(which: Any, *cases: Any) -> Any:
    return cases[min(max(int(which), 0), len(cases) - 1)]


_COMPARISONS: _Table = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}

# ---------------------------------------------------------------------- integers


def _integers(dtype: Any) -> _Table:
    """Operations of one type: exact ones on Python's integers, and what wraps their results."""
    if dtype not in _tables:
        _tables[dtype] = _wrapping(dtype)
    return _tables[dtype]


_tables: dict[Any, _Table] = {}


def _wrapping(dtype: np.dtype[Any]) -> _Table:
    bits, signed = _width(dtype)

    def wrapped(function: Callable[..., int]) -> Callable[..., Any]:
        return lambda *numbers: _wrap(function(*map(int, numbers)), bits, signed=signed)

    def pattern(x: int) -> int:
        return _wrap(x, bits, signed=False)

    def shift(by: int) -> int:
        return min(pattern(by), bits)  # from the width on all distances are alike

    exact: dict[str, Callable[..., int]] = {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "neg": operator.neg,
        "abs": abs,
        "max": max,
        "min": min,
        "div": _quotient,
        "rem": _remainder,
        "sign": lambda x: (x > 0) - (x < 0),
        "square": lambda x: x * x,
        "clamp": lambda low, x, high: min(max(low, x), high),
        "integer_pow": lambda x, y: pow(x, y, 1 << bits),
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
        "not": operator.invert,
        "shift_left": lambda x, by: x << shift(by),
        "shift_right_arithmetic": lambda x, by: _wrap(x, bits, signed=True) >> shift(by),
        "shift_right_logical": lambda x, by: pattern(x) >> shift(by),
        "population_count": lambda x: pattern(x).bit_count(),
        "clz": lambda x: bits - pattern(x).bit_length(),
    }
    return {**_COMPARISONS, **{name: wrapped(function) for name, function in exact.items()}}


def _width(dtype: np.dtype[Any]) -> tuple[int, bool]:
    """How many bits an integer has, and whether it has a sign."""
    return (1 if dtype.kind == "b" else 8 * dtype.itemsize), dtype.kind == "i"


def _wrap(x: int, bits: int, *, signed: bool) -> int:
    x &= (1 << bits) - 1
    return x - (1 << bits) if signed and x >> (bits - 1) else x


def _quotient(a: int, b: int) -> int:
    """Towards zero; all bits are set where XLA divides by zero."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def _remainder(a: int, b: int) -> int:
    """Of the sign of the dividend, which is the remainder of a division by zero."""
    return a if b == 0 else a - b * _quotient(a, b)


# ---------------------------------------------------------------------- floats


def _max(a: Any, b: Any) -> Any:
    """Of two zeros the positive one; not a number where one is none."""
    return np.maximum(a, b) if a != b else (b if np.signbit(a) else a)


def _min(a: Any, b: Any) -> Any:
    return np.minimum(a, b) if a != b else (a if np.signbit(a) else b)


def _power(x: Any, y: int) -> Any:
    """By squaring, in XLA's order; a negative power is the inverse."""
    power = None
    rest = abs(y)
    while rest:
        if rest & 1:
            power = x if power is None else power * x
        rest >>= 1
        if rest:
            x = x * x
    if power is None:
        return type(x)(1)
    return power if y > 0 else type(x)(1) / power


def _round(x: Any, method: int) -> Any:
    """Half away from zero, or to even."""
    to_even = np.rint(x)
    if method == 1:
        return to_even
    return np.copysign(np.floor(abs(x) + type(x)(0.5)), x) if abs(x - to_even) == 0.5 else to_even


_FLOATS: _Table = {
    **_COMPARISONS,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "abs": abs,
    "max": _max,
    "min": _min,
    "div": operator.truediv,
    "rem": np.fmod,
    "sign": lambda x: np.copysign(np.sign(x), x),
    "square": lambda x: x * x,
    "clamp": lambda low, x, high: _min(_max(low, x), high),
    "integer_pow": _power,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": _round,
    "is_finite": np.isfinite,
}


def _convert(x: Any, dtype: np.dtype[Any]) -> Any:
    """To an integer type a float is cut off, saturates, and is 0 where it is no number."""
    if dtype.kind == "b":
        return x != 0
    if dtype.kind not in "iu":
        return x.astype(dtype)
    bits, signed = _width(dtype)
    if x.dtype.kind in "biu":
        return _wrap(int(x), bits, signed=signed)
    exact = float(x)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not math.isfinite(exact):
        return high if exact > 0 else low if exact < 0 else 0
    return min(max(int(exact), low), high)

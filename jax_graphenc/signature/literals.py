"""Values as C++ writes them, with every bit."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from jax_graphenc.signature.types import spelling_of

_NARROW = tuple(
    map(np.dtype, (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
)
WRITABLE = "bool, integers, floats of 8 to 64 bits, complex, and structs of these"


def literal_of(array: np.ndarray[Any, Any]) -> str:
    """An initializer for an array, a scalar or a structured value.

    Raises:
        TypeError: C++ has no way to write its dtype.
    """
    if array.ndim:
        return "{" + ", ".join(literal_of(part) for part in array) + "}"
    if array.dtype.names is not None:
        return "{" + ", ".join(literal_of(array[name]) for name in array.dtype.names) + "}"
    return _scalar(array[()] if isinstance(array, np.ndarray) else array, array.dtype)


def macro_of(value: bool | int | float | str | np.generic | None) -> str:
    """The text of a macro that stands for a value: of the same type, as far as C++ has it.

    Floats narrower than `float` become that. Integers are `int` where they fit, as when written by
    hand.

    Raises:
        TypeError: It is no value of a macro.
        OverflowError: No integer type of C++ holds it.
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, int | np.integer) and not isinstance(value, np.timedelta64):
        return _integer(int(value))
    if isinstance(value, np.generic) and value.dtype in (np.float32, *_NARROW):
        return _float(np.float32(value), "f")
    if isinstance(value, float | np.floating):
        return _float(np.float64(value), "")
    raise TypeError(f"{value!r} is no value of a macro")


def _integer(value: int) -> str:
    if not -(2**63) <= value < 2**64:
        raise OverflowError(f"{value}: no integer type of C++ holds it")
    if value == -(2**63):
        return f"({value + 1}L - 1)"  # The literal without its sign is out of range.
    return f"{value}UL" if value >= 2**63 else str(value)


def _float(value: np.float32 | np.float64, suffix: str) -> str:
    if not math.isfinite(value):
        return _scalar(value, value.dtype)
    return f"{value!s}{suffix}"


def _scalar(value: Any, dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "u":
        return f"{int(value)}ULL"
    if dtype.kind == "i":
        number = int(value)
        return f"{number}LL" if number > -(2**63) else f"({number + 1}LL - 1)"
    if dtype in _NARROW:
        return _bits(
            value, spelling_of(dtype), "unsigned short" if dtype.itemsize == 2 else "unsigned char"
        )
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        real, imaginary = (part.type(x) for x in (value.real, value.imag))
        return f"{{{_scalar(real, part)}, {_scalar(imaginary, part)}}}"
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"globals=: {dtype} cannot be written in C++; {WRITABLE} can be")
    if math.isfinite(value):
        return float(value).hex() + ("f" if dtype == np.float32 else "")
    if dtype == np.float32:
        return _bits(value, "float", "unsigned int")
    return _bits(value, "double", "unsigned long long")


def _bits(value: Any, kind: str, of: str) -> str:
    """What has no literal: a value by its bits."""
    bits = value.view(np.dtype(f"u{value.dtype.itemsize}"))
    return f"__builtin_bit_cast({kind}, ({of}){int(bits):#x})"

"""By-value arguments: what a caller may pass, and how it becomes bytes."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np

from jax_graphenc.signature.layouts import Enum, Layout, Opaque, Struct
from jax_graphenc.signature.types import dtype_of


class Keywords:
    """The keywords of a call, in any order, compared by what would pack or print differently.

    That tells 0.0 from -0.0, and 1 from 1.0 and True.
    """

    __slots__ = ("_key", "values")

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)
        self._key = tuple(sorted((name, _key(value)) for name, value in self.values.items()))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keywords) and self._key == other._key

    def __repr__(self) -> str:
        return f"Keywords({self.values})"


def _key(value: Any) -> Hashable:
    # numpy's float64 is a Python float too, but promotes differently.
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if isinstance(value, float):
        return float, struct.pack("=d", value)
    if isinstance(value, complex):
        return complex, struct.pack("=dd", value.real, value.imag)
    return type(value), value


def concrete(value: Any, name: str, kernel: str, layout: Layout | None = None) -> Any:
    """A keyword argument as a Python or numpy scalar, with a struct's padding zeroed.

    Args:
        value: what was given.
        name: the parameter's.
        kernel: its kernel's name, for messages.
        layout: what the source says of the parameter's type.

    Raises:
        TypeError: for a traced value, saying how to pass it by pointer, for an array, or for what
            is no number.
    """
    if isinstance(value, jax.core.Tracer):
        raise traced_value_error(kernel, name, "where it must be known when the call is traced")
    if isinstance(layout, Enum):
        value = _enumerator(value, layout, f"kernel '{kernel}': '{name}' ({layout.name})")
    if isinstance(value, jax.Array | np.ndarray):
        if value.ndim:
            raise TypeError(
                f"kernel '{kernel}': '{name}' is passed by value and is an array of shape "
                f"{value.shape}; a scalar is expected"
            )
        value = np.asarray(value)[()]
    if isinstance(value, np.void):
        return without_padding(np.asarray(value))
    numeric = isinstance(value, np.generic) and value.dtype.kind in "biufcV"
    if not numeric and not isinstance(value, bool | int | float | complex):
        raise TypeError(
            f"kernel '{kernel}': keyword '{name}': a number, or a structured numpy scalar for a "
            f"struct, is expected; got {type(value).__name__}"
        )
    return value


def _enumerator(value: Any, enum: Enum, where: str) -> Any:
    """A value of an enumeration as an integer, from one or from an enumerator's name.

    Raises:
        TypeError: for anything else.
    """
    values = dict(enum.enumerators)
    if isinstance(value, str):
        known = values.get(value.rpartition("::")[2].strip())
        if known is None:
            raise TypeError(f"{where} has no enumerator {value!r}; it has {_names(values)}")
        return known
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer and getattr(value, "dtype", np.dtype(float)).kind not in "iu":
        raise TypeError(
            f"{where} is an enumeration: an integer or the name of an enumerator is expected, of "
            f"{_names(values)}; got {value!r}"
        )
    return int(value) if isinstance(value, int) else value


def _names(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items()) or "none known here"


def traced_value_error(kernel: str, name: str, why: str) -> TypeError:
    """What to do about a by-value parameter that is traced and cannot be."""
    return TypeError(
        f"kernel '{kernel}': '{name}' is passed by value and is traced here, {why}. Take it by "
        f"pointer instead: declare `const T* {name}`, read `*{name}` in the kernel, and pass it as "
        "an input; or make it a static argument (static_argnames)"
    )


def dtype_of_value(declared: str, layout: Layout | None) -> np.dtype[Any] | None:
    """The dtype of a scalar parameter; ``None`` for a struct, or what only the compiler knows."""
    if isinstance(layout, Enum):
        return dtype_of(layout.underlying)
    return dtype_of(declared)


def check_loadable(
    value: Any, declared: str, name: str, kernel: str, layout: Layout | None = None
) -> None:
    """Refuses a traced value that is no scalar, or of a kind that the parameter does not take.

    Raises:
        TypeError: naming both.
    """
    if isinstance(layout, Struct | Opaque):
        raise traced_value_error(kernel, name, "and a struct must be known when the call is traced")
    if value.ndim:
        raise TypeError(
            f"kernel '{kernel}': '{name}' is passed by value and is an array of shape "
            f"{value.shape}; a scalar is expected"
        )
    dtype = dtype_of_value(declared, layout)
    if dtype and _ORDER[_kind(value.dtype)] > _ORDER[_kind(dtype)]:
        raise TypeError(
            f"kernel '{kernel}': '{name}' ({declared}) takes {_a(dtype)} scalar; got a traced "
            f"{value.dtype}: convert it with .astype({dtype.name!r})"
        )


def without_padding(value: np.ndarray[Any, Any]) -> Any:
    """A structured scalar whose padding is zero."""
    clean = np.zeros((), value.dtype)
    _copy_fields(clean, value)
    return clean[()]


def _copy_fields(to: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
    """Copies all but padding, whose bytes are what happened to be there."""
    if to.dtype.names is None:
        to[...] = source
    for name in to.dtype.names or ():
        _copy_fields(to[name], source[name])


# What is narrower in kind converts without loss of meaning.
_ORDER = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def pack(
    value: Any,
    dtype: np.dtype[Any] | None,
    name: str,
    declared: str,
    kernel: str,
    layout: Layout | None = None,
) -> bytes:
    """The bytes of a by-value argument.

    Args:
        value: a Python or numpy scalar; a structured numpy scalar for a struct.
        dtype: what the kernel takes; ``None`` where only the compiler knows, which then holds the
            size against its own.
        name: the parameter's, for messages.
        declared: its C++ type, for messages.
        kernel: the kernel's name, for messages.
        layout: what the source says of the type, for messages.

    Raises:
        TypeError: if the value is of another kind, or out of range.
    """
    where = f"kernel '{kernel}': '{name}' ({declared})"
    if dtype is None:
        if isinstance(value, np.generic):
            return value.tobytes()
        because = f" ({layout.why})" if isinstance(layout, Opaque) else ""
        raise TypeError(
            f"{where} is of a type whose size only the compiler knows{because}, so {value!r} has "
            "none: pass a numpy scalar of the right type, such as np.float32(...), or a structured "
            "numpy scalar for a struct"
        )
    scalar = np.asarray(value)
    given, wanted = _ORDER.get(_kind(scalar.dtype), 4), _ORDER[_kind(dtype)]
    if given > wanted:
        raise TypeError(f"{where} takes {_a(dtype)} scalar; got {value!r}: convert it")
    if wanted == 1:
        info = np.iinfo(dtype)
        if not info.min <= int(scalar) <= info.max:
            raise TypeError(f"{where} holds {info.min} to {info.max}; got {value!r}")
    with np.errstate(over="ignore"):
        packed = scalar.astype(dtype)
    if np.isfinite(scalar) and not np.isfinite(packed):
        raise TypeError(f"{where}: {value!r} is out of the range of {dtype}")
    return packed.tobytes()


def _a(dtype: np.dtype[Any]) -> str:
    return f"{'an' if dtype.name.startswith('int') else 'a'} {dtype}"


def _kind(dtype: np.dtype[Any]) -> str:
    # bfloat16 and the 8-bit floats are of numpy's kind "V".
    return "f" if jax.numpy.issubdtype(dtype, jax.numpy.floating) else dtype.kind

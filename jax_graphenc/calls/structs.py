"""Structs by value: from tuples, dicts and arrays to a structured scalar of the source's layout."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jax_graphenc.calls.values import (
    concrete,
    dtype_of_value,
    pack,
    traced_value_error,
    without_padding,
)
from jax_graphenc.signature.layouts import Enum, Field, Layout, Pointer, Struct


def by_value(value: Any, name: str, kernel: str, layout: Layout | None) -> Any:
    """A by-value argument as a Python or numpy scalar; a struct's is a structured one.

    Args:
        value: what was given.
        name: the parameter's.
        kernel: its kernel's name, for messages.
        layout: what the source says of the parameter's type.

    Raises:
        TypeError: for what the parameter does not take.
    """
    if not isinstance(layout, Struct):
        return concrete(value, name, kernel, layout)
    if isinstance(value, jax.core.Tracer):
        raise traced_value_error(kernel, name, "and a struct must be known when the call is traced")
    return _struct(value, layout, name, kernel)


@functools.lru_cache(maxsize=256)
def dtype_of_struct(struct: Struct) -> np.dtype[Any]:
    """The dtype of a struct's memory, without its pointers."""
    formats: list[Any] = [
        (_dtype_of(f.of), f.shape) if f.shape else _dtype_of(f.of) for f in struct.data
    ]
    return np.dtype(
        {
            "names": [f.name for f in struct.data],
            "formats": formats,
            "offsets": [f.offset for f in struct.data],
            "itemsize": struct.size,
        }
    )


def _dtype_of(of: np.dtype[Any] | Enum | Struct | Pointer) -> np.dtype[Any]:
    assert not isinstance(of, Pointer)
    if isinstance(of, Struct):
        return dtype_of_struct(of)
    if isinstance(of, Enum):
        dtype = dtype_of_value("", of)
        assert dtype is not None
        return dtype
    return of


def _struct(value: Any, struct: Struct, name: str, kernel: str) -> Any:
    """A struct from what stands for it.

    Raises:
        TypeError: for what does not.
    """
    names = [f.name for f in struct.data]
    if isinstance(value, np.void | np.ndarray) and value.dtype.names and value.ndim == 0:
        if set(value.dtype.names) != set(names) and not any(struct.pointers()):
            # Names of the caller's own: the compiler holds the size against the struct's.
            return without_padding(np.asarray(value))
        value = {member: value[member] for member in value.dtype.names}
    of = _by_name if isinstance(value, Mapping) else _in_order
    given = of(value, struct, name, kernel)
    out = np.zeros((), dtype_of_struct(struct))
    for field, x in zip(struct.data, given, strict=True):
        out[field.name] = _member(x, field, f"{name}.{field.name}", kernel)
    return out[()]


def _by_name(value: Mapping[Any, Any], struct: Struct, name: str, kernel: str) -> Sequence[Any]:
    names = [f.name for f in struct.data]
    if surplus := [key for key in value if key not in names]:
        is_pointer = any(f.name == surplus[0] for f in struct.fields)
        note = f". '{name}.{surplus[0]}' is a pointer, and so an input of its own, or an output"
        raise TypeError(
            f"kernel '{kernel}': '{name}' ({struct.name}) has no member {surplus[0]!r}; its "
            f"members are {', '.join(names)}{note if is_pointer else ''}"
        )
    if missing := [member for member in names if member not in value]:
        raise TypeError(
            f"kernel '{kernel}': '{name}' ({struct.name}) is given without its member"
            f"{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        )
    return [value[member] for member in names]


def _in_order(value: Any, struct: Struct, name: str, kernel: str) -> Sequence[Any]:
    is_dim3 = struct.name.removeprefix("::") == "dim3"
    if is_dim3 and isinstance(value, int | np.integer):
        value = (value,)
    if isinstance(value, jax.Array | np.ndarray) and value.ndim:
        value = list(np.asarray(value))
    count = len(struct.data)
    if isinstance(value, tuple | list) and is_dim3 and 0 < len(value) < count:
        value = [*value, 1, 1][:count]
    if isinstance(value, tuple | list) and len(value) == count:
        return value
    got = f"{len(value)} values" if isinstance(value, tuple | list) else repr(value)
    members = ", ".join(f"{f.type} {f.name}{_brackets(f.shape)}" for f in struct.data)
    raise TypeError(
        f"kernel '{kernel}': '{name}' is a struct, {struct.name} {{{members}}}: a tuple of "
        f"{count}, or a dict by name, is expected; got {got}"
    )


def _brackets(numbers: Sequence[int]) -> str:
    return "".join(f"[{n}]" for n in numbers)


def _member(value: Any, field: Field, name: str, kernel: str) -> Any:
    """A member, or an array of such, as numpy takes it."""
    if not field.shape:
        return _element(value, field, name, kernel)
    if isinstance(value, jax.core.Tracer):
        raise _traced_member_error(kernel, name)
    out = np.zeros(field.shape, _dtype_of(field.of))
    for at in itertools.product(*map(range, field.shape)):
        x = value
        for depth, i in enumerate(at):
            if not hasattr(x, "__len__") or len(x) != field.shape[depth]:
                raise TypeError(
                    f"kernel '{kernel}': '{name}' is an array, {field.type}"
                    f"{_brackets(field.shape)}: values of that shape are expected; got {value!r}"
                )
            x = x[i]
        out[at] = _element(x, field, f"{name}{_brackets(at)}", kernel)
    return out


def _traced_member_error(kernel: str, name: str) -> TypeError:
    return TypeError(
        f"kernel '{kernel}': '{name}' is a member of a struct that is passed by value, and is "
        "traced here, where it must be known when the call is traced. Give the kernel a parameter "
        "of its own for it; or make it a static argument (static_argnames)"
    )


def _element(value: Any, field: Field, name: str, kernel: str) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise _traced_member_error(kernel, name)
    if isinstance(field.of, Struct):
        return _struct(value, field.of, name, kernel)
    enum = field.of if isinstance(field.of, Enum) else None
    dtype = _dtype_of(field.of)
    number = concrete(value, name, kernel, enum)
    return np.frombuffer(pack(number, dtype, name, field.type, kernel), dtype)[0]

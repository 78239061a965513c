"""The arrays of a call, held against the kernel's parameters; errors say which is wrong."""

from __future__ import annotations

import contextlib
import math
import operator
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jax_graphenc.base.shapes import Array
from jax_graphenc.calls.parameters import Parameter
from jax_graphenc.signature.types import dtype_of, element_of, holds

MAX_ARRAY_BYTES = 2**48
"""What processors and GPUs address."""


def as_array(value: Any, where: str) -> jax.Array:
    """An input as a JAX array; ``where`` says which, for messages.

    Raises:
        TypeError: for what is none.
    """
    if isinstance(value, jax.Ref):
        raise TypeError(f"{where} is a mutable array (jax.new_ref): pass its value, ref[...]")
    try:
        if value is not None:
            return jax.numpy.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{where}: an array is expected; got {_described(value, error)}") from None
    raise TypeError(f"{where}: an array is expected; got None")


def _described(value: Any, error: Exception) -> str:
    """What was given instead of an array, and why it is none; short, whatever its size."""
    if isinstance(value, tuple | list) and any(hasattr(x, "shape") for x in value):
        kind = type(value).__name__
        return f"a {kind} of {len(value)} arguments: pass them one by one, by-value ones by keyword"
    return f"{reprlib.repr(value)}: {error}"


def check_arrays(
    shapes: Sequence[tuple[tuple[Any, ...], Any]], where: Callable[[int], str]
) -> tuple[Array, ...]:
    """Shapes and dtypes of the inputs, all of which must be known; ``where`` says which is wrong.

    Raises:
        TypeError: for a symbolic shape, or elements that are no numbers.
        ValueError: for more bytes than an array can have.
    """
    for position, (shape, dtype) in enumerate(shapes):
        if not isinstance(dtype, np.dtype):
            raise TypeError(
                f"{where(position)} has elements of type {dtype}, which C++ does "
                "not know; for a random key, pass jax.random.key_data(key)"
            )
        if not all(isinstance(n, int) for n in shape):
            raise TypeError(
                f"{where(position)} has the symbolic shape {shape}: launches "
                "and sizes are fixed; export for concrete shapes"
            )
        _check_bytes(f"{where(position)} has", shape, dtype)
    return tuple(shapes)


def _check_bytes(what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuses what no memory holds, and what counts of bytes would overflow with."""
    if (count := math.prod(shape) * dtype.itemsize) > MAX_ARRAY_BYTES:
        raise ValueError(
            f"{what} the shape {shape} {dtype}, {count} bytes; the limit is {MAX_ARRAY_BYTES}"
        )


def check_vectors(
    spelled: str, parameters: Sequence[Parameter], arrays: Mapping[str, Array]
) -> None:
    """Refuses an array that does not consist of whole vectors where a pointer is to such.

    Args:
        spelled: the kernel's signature, for messages.
        parameters: the kernel's.
        arrays: shape and dtype by name.

    Raises:
        ValueError: naming the array.
    """
    for p in parameters:
        if p.role in ("value", "null"):
            continue
        shape, dtype = arrays[p.name]
        if of := lanes(p.type, math.prod(shape), dtype):
            raise ValueError(
                f"kernel {spelled}: '{p.name}' points to {p.type}, {of} elements of {dtype} each; "
                f"the size of {dtype}[{','.join(map(str, shape))}], {math.prod(shape)}, is no "
                f"multiple of {of}"
            )


def lanes(type_name: str, size: int, dtype: np.dtype[Any]) -> int | None:
    """How many elements of a dtype a C++ type holds, if the size of an array is no multiple."""
    element = element_of(type_name)
    of = element[0].itemsize * element[1] // dtype.itemsize if element else 1
    return of if of > 1 and size % of else None


@contextlib.contextmanager
def showing_call(
    name: str, arrays: Sequence[Array | None], keywords: Mapping[str, Any]
) -> Iterator[None]:
    """Shows how the kernel was called under what is wrong with the call, which shows its signature.

    Raises:
        TypeError: for one inside.
    """
    try:
        yield
    except TypeError as error:
        raise TypeError(f"{error}\n  {shown_call(name, arrays, keywords)}") from None


def shown_call(name: str, arrays: Sequence[Array | None], keywords: Mapping[str, Any]) -> str:
    """How a kernel was called, for messages."""
    given = ["None" if x is None else f"{x[1]}[{','.join(map(str, x[0]))}]" for x in arrays]
    given += [f"{k}={_shown(x)}" for k, x in keywords.items()]
    return f"called as {name}({', '.join(given)})"


def _shown(value: Any) -> str:
    """A keyword as it was given; an array or a traced value by its type."""
    traced = isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct)
    if traced or (hasattr(value, "dtype") and np.ndim(value)):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return repr(value.item() if isinstance(value, np.void) else value)


def check_inputs(
    spelled: str, parameters: Sequence[Parameter], dtypes: Sequence[np.dtype[Any]], hint: str
) -> None:
    """Refuses a wrong number of inputs or a wrong dtype.

    Args:
        spelled: the kernel's signature, for messages.
        parameters: the kernel's.
        dtypes: of the inputs.
        hint: what may be behind a wrong number.

    Raises:
        TypeError: naming the input.
    """
    inputs = [p for p in parameters if p.is_input]
    if len(inputs) != len(dtypes):
        surplus = _why_too_many(parameters) if len(dtypes) > len(inputs) else ""
        raise TypeError(
            f"kernel {spelled} takes {_count(inputs, 'input')}; got {len(dtypes)}{surplus}{hint}"
        )
    for p, dtype in zip(inputs, dtypes, strict=True):
        if not holds(p.type, dtype):
            raise TypeError(
                f"kernel {spelled}: input '{p.name}' points to {p.type}; got {dtype}. "
                f"{_enable_x64(p.type)}{_how_to_convert(spelled, p)}"
            )


def check_outputs(
    spelled: str, parameters: Sequence[Parameter], dtypes: Sequence[np.dtype[Any]]
) -> None:
    """Refuses a wrong dtype of an array that a kernel writes, of those that are no input too.

    Args:
        spelled: the kernel's signature, for messages.
        parameters: the kernel's.
        dtypes: of the outputs, in the kernel's order.

    Raises:
        TypeError: naming the output.
    """
    pure = [p for p in parameters if p.role == "out"]
    for p, dtype in zip(pure, dtypes, strict=True):
        if not holds(p.type, dtype):
            raise TypeError(
                f"kernel {spelled}: output '{p.name}' points to {p.type}; got {dtype}. "
                f"{_enable_x64(p.type)}{_how_to_convert(spelled, p)}"
            )


def check_keywords(
    spelled: str, parameters: Sequence[Parameter], values: Mapping[str, Any]
) -> None:
    """Refuses missing and surplus keywords.

    Raises:
        TypeError: naming them.
    """
    wanted = [p.name for p in parameters if p.is_keyword]
    for p in parameters:
        if p.name in values and p.role != "value":
            what = "an output, which the call returns: leave it out"
            if p.is_input or p.role == "null":
                what = "an input: pass it by position, in the kernel's order"
            elif p.role == "scratch":
                what = "scratch memory, which the program has: leave it out"
            raise TypeError(f"kernel {spelled}: '{p.name}' is {what}")
    if surplus := [name for name in values if name not in wanted]:
        raise TypeError(
            f"kernel {spelled}: {', '.join(surplus)} is no by-value parameter; they are: "
            f"{', '.join(wanted) or 'none'}"
        )
    if missing := [name for name in wanted if name not in values]:
        what = "keyword {} is missing" if len(missing) == 1 else "keywords {} are missing"
        unread = [
            f"; the default of '{p.name}', {p.default.text}, is no constant that is known here: "
            f"give it in the call, or by values={{'{p.name}': ...}}"
            for p in parameters
            if p.name in missing and p.default is not None
        ]
        raise TypeError(f"kernel {spelled}: {what.format(', '.join(missing))}{''.join(unread)}")


def results(
    spelled: str,
    parameters: Sequence[Parameter],
    out_shape: Any,
    inputs: Mapping[str, Array],
    kernel: str,
) -> tuple[Array, ...]:
    """Shape and dtype of each output, in the kernel's order.

    Args:
        spelled: the kernel's signature, for messages.
        parameters: the kernel's.
        out_shape: of the outputs that are not updated in place: anything with a shape and dtype, or
            a sequence of such.
        inputs: shape and dtype by name.
        kernel: the kernel's name, for messages.

    Raises:
        TypeError: for a wrong number of shapes or a wrong dtype.
    """
    pure = [p for p in parameters if p.role == "out"]
    given = () if out_shape is None else _as_arrays(out_shape, "out_shape", kernel)
    if len(given) != len(pure):
        absent = [p.name for p in parameters if p.role == "null"]
        note = f" ({', '.join(absent)}: None in this call)" if absent and not given else ""
        raise TypeError(
            f"kernel {spelled} has {_count(pure, 'output')} to be shaped; out_shape gives "
            f"{len(given)}{note}. Give one each, such as out_shape=lambda x: x"
        )
    for p, (_, dtype) in zip(pure, given, strict=True):
        _check_said(spelled, p, dtype, f"output '{p.name}'", "out_shape")
    shapes = iter(given)
    return tuple(
        inputs[p.name] if p.role == "inout" else next(shapes)
        for p in parameters
        if p.role in ("out", "inout")
    )


def scratch_array(spelled: str, parameter: Parameter, shape: Any, kernel: str) -> Array:
    """Shape and dtype of a scratch parameter's memory.

    Args:
        spelled: the kernel's signature, for messages.
        parameter: the parameter.
        shape: what ``scratch=`` says of it: anything with a shape and dtype.
        kernel: the kernel's name, for messages.

    Raises:
        TypeError: for what has none, or another dtype.
    """
    what = f"scratch[{parameter.name!r}]"
    [(sizes, dtype)] = _as_arrays((shape,), what, kernel)
    _check_said(spelled, parameter, dtype, f"'{parameter.name}'", what)
    return sizes, dtype


def _check_said(
    spelled: str, parameter: Parameter, dtype: np.dtype[Any], which: str, what: str
) -> None:
    if not holds(parameter.type, dtype):
        raise TypeError(
            f"kernel {spelled}: {which} points to {parameter.type}; {what} says {dtype}. "
            f"{_enable_x64(parameter.type)}".rstrip(". ")
        )


def returned(outputs: Sequence[Any]) -> Any:
    """Outputs as a kernel's function returns them: one alone, several as a tuple."""
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _as_arrays(shapes: Any, what: str, kernel: str) -> tuple[Array, ...]:
    """Shapes and dtypes of what an option says, which is called ``what`` in messages."""
    many: Sequence[Any] = shapes if isinstance(shapes, tuple | list) else (shapes,)
    found = []
    for shape in many:
        if not hasattr(shape, "shape") or not hasattr(shape, "dtype"):
            raise TypeError(
                f"kernel '{kernel}': {what} has {shape!r}, which has no shape and dtype; use "
                "jax.ShapeDtypeStruct(shape, dtype)"
                + (" for each output" if what == "out_shape" else "")
            )
        try:
            sizes = tuple(operator.index(n) for n in shape.shape)
        except TypeError:
            why = f"the shape {tuple(shape.shape)!r}, which is not made of integers"
            if any(isinstance(n, jax.core.Tracer | jax.ShapeDtypeStruct) for n in shape.shape):
                why = (
                    "a shape with a traced value in it; shapes are fixed when the call is traced, "
                    "so pass it as a Python number (static_argnames of jax.jit)"
                )
            raise TypeError(f"kernel '{kernel}': {what} has {why}") from None
        if any(n < 0 for n in sizes):
            raise ValueError(
                f"kernel '{kernel}': {what} has the shape {sizes}, with a negative size"
            )
        dtype = np.dtype(shape.dtype)
        _check_bytes(f"kernel '{kernel}': {what} has", sizes, dtype)
        found.append((sizes, dtype))
    return tuple(found)


def _count(parameters: Sequence[Parameter], what: str) -> str:
    """``"1 input (x)"``, ``"2 inputs (x, y)"``."""
    names = ", ".join(p.name for p in parameters) or "none"
    return f"{len(parameters)} {what}{'s' if len(parameters) != 1 else ''} ({names})"


def _why_too_many(parameters: Sequence[Parameter]) -> str:
    """The two usual reasons for more inputs than a kernel takes."""
    outputs = [p for p in parameters if p.role == "out"]
    values = [p.name for p in parameters if p.role == "value"]
    reasons = []
    if values:
        reasons.append(f"values are keywords: {', '.join(f'{name}=...' for name in values)}")
    if outputs:
        p = outputs[0]
        reasons.append(
            f"{p.type}* {p.name} is an output: write const {p.type}* for what is only read, or "
            f"params={{'{p.name}': 'inout'}} for what is updated"
        )
    return "".join(f"; {reason}" for reason in reasons)


def _how_to_convert(spelled: str, parameter: Parameter) -> str:
    """The two ways to give a kernel an array of the dtype that it takes."""
    dtype = dtype_of(parameter.type)
    to = "..." if dtype is None else repr(dtype.name)
    bare = spelled.partition("(")[0].partition("<")[0]
    return (
        f"Convert it with .astype({to}), or make the kernel a template, with "
        f'name="{bare}<{{{parameter.name}}}>" for any dtype'
    )


def _enable_x64(type_name: str) -> str:
    """What to do where JAX has no arrays of a type because it is kept to 32 bits."""
    dtype = dtype_of(type_name)
    if dtype is None or jax.dtypes.canonicalize_dtype(dtype) == dtype:
        return ""
    return 'JAX has no 64-bit types before jax.config.update("jax_enable_x64", True). '

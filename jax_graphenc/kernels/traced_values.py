"""By-value parameters that are traced: a copy of the kernel loads them from operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from jax_graphenc.calls import arguments
from jax_graphenc.calls.code import CudaSource
from jax_graphenc.calls.values import check_loadable, traced_value_error
from jax_graphenc.kernels.definition import Definition, Original
from jax_graphenc.kernels.derivatives import Rule
from jax_graphenc.kernels.prepare import check_call
from jax_graphenc.signature.loaded import loaded_name, loaded_parameter, with_loaded_values
from jax_graphenc.signature.types import header_of, spelling_of

_Function = Callable[..., Any]

Loads = tuple[tuple[str, np.dtype[Any]], ...]
"""The parameters that a copy loads and their dtypes in memory, in the kernel's order."""


# ---------------------------------------------------------------------- the call


def loads_of(
    definition: Definition,
    inputs: Sequence[Any],
    keywords: Mapping[str, Any],
    traced: Mapping[str, Any],
) -> Loads:
    """What a call with traced values must load; the call is held against the user's signature.

    Raises:
        TypeError: as a call does.
    """
    parameters = {p.name: p for p in definition.described}
    for name, value in traced.items():
        p = parameters[name]
        check_loadable(value, p.type, name, definition.title, p.layout)
    arrays = arguments.check_arrays([(x.shape, x.dtype) for x in inputs], definition.where)
    with arguments.showing_call(definition.title, arrays, keywords):
        dtypes = [dtype for _, dtype in arrays]
        check_call(definition, dtypes, {**definition.defaults, **keywords})
    names = [p.name for p in definition.described if p.name in traced]
    return tuple((name, traced[name].dtype) for name in names)


def without_derivatives(traced: Mapping[str, Any], kernel: str) -> dict[str, Any]:
    """Traced values whose derivative no rule gives; asking for it is an error."""
    return {
        name: _without_derivative(value, name, kernel)
        if jax.numpy.issubdtype(value.dtype, jax.numpy.inexact)
        else value
        for name, value in traced.items()
    }


def _without_derivative(value: Any, name: str, kernel: str) -> Any:
    @jax.custom_jvp
    def same(x: Any) -> Any:
        return x

    @same.defjvp
    def refuse(primals: Any, tangents: Any) -> Any:
        raise TypeError(
            f"kernel '{kernel}': '{name}' is passed by value, and its rule says nothing of a "
            "derivative with respect to it. Take it by pointer, as an input; or give reference= "
            "instead of a rule, which has that derivative; or wrap it in jax.lax.stop_gradient"
        )

    return same(value)


# ---------------------------------------------------------------------- the copy


def loading(definition: Definition, loads: Loads) -> Definition:
    """A copy of a kernel that takes pointers to some of its by-value parameters.

    Raises:
        TypeError: for a kernel that cannot be copied, saying what to write instead.
    """
    source = definition.source
    if source is None:
        raise traced_value_error(
            definition.title, loads[0][0], "which a kernel given as an image cannot load"
        )
    types = {name: spelling_of(dtype) for name, dtype in loads}
    try:
        text = with_loaded_values(source.text, definition.name, types, source.line)
    except ValueError as error:
        raise traced_value_error(
            definition.title, loads[0][0], f"which the kernel cannot be made to load: {error}"
        ) from None
    headers = {header for _, dtype in loads if (header := header_of(dtype))}
    headers |= {*source.headers}
    pointers = [p.name for p in definition.described if p.is_input or p.name in types]
    positions = tuple(pointers.index(name) for name in types)
    original = Original(definition, tuple(types), positions)
    vmap, reference = definition.vmap, definition.reference
    return replace(
        definition,
        name=loaded_name(definition.name, types),
        code=CudaSource(replace(source, text=text, headers=tuple(sorted(headers)))),
        params={
            loaded_parameter(name) if name in types else name: f"const {types[name]}*"
            if name in types
            else text
            for name, text in definition.params.items()
        },
        values={name: x for name, x in definition.defaults.items() if name not in types},
        reference=reference and _AsKeywords(reference, original),
        vmap=_batching_rule(vmap, original) if callable(vmap) else vmap,
        sharding=definition.sharding_rule,
        original=original,
    )


@dataclass(frozen=True, slots=True)
class _AsKeywords:
    """A function of the user's inputs and keywords, as one of a copy's operands."""

    function: _Function
    original: Original

    def __call__(self, *operands: Any, **keywords: Any) -> Any:
        inputs, values = self.original.split(operands)
        return self.function(*inputs, **keywords, **values)


def _batching_rule(rule: _Function, original: Original) -> _Function:
    """A batching rule of the user's, for a copy's operands."""

    def wrapped(axis_size: int, in_batched: Sequence[bool], *operands: Any, **keywords: Any) -> Any:
        flags, by_name = original.split(in_batched)
        inputs, values = original.split(operands)
        if batched := [name for name, flag in by_name.items() if flag]:
            raise TypeError(
                f"'{batched[0]}' is passed by value and differs from element to element of the "
                "batch, which a batching rule of your own does not see: take it by pointer"
            )
        return rule(axis_size, flags, *inputs, **keywords, **values)

    return wrapped


def derivative_rule(rule: Rule, original: Original) -> Rule:
    """A derivative rule of the user's, for a copy's operands."""
    if len(rule) == 1:

        def jvp(primals: Sequence[Any], tangents: Sequence[Any], **keywords: Any) -> Any:
            inputs, values = original.split(primals)
            return rule[0](tuple(inputs), tuple(original.split(tangents)[0]), **keywords, **values)

        return (jvp,)

    def fwd(*operands: Any, **keywords: Any) -> Any:
        inputs, values = original.split(operands)
        out, residuals = rule[0](*inputs, **keywords, **values)
        return out, (residuals, values)

    def bwd(kept: Any, cotangents: Any, **keywords: Any) -> Any:
        residuals, values = kept
        given = rule[1](residuals, cotangents, **keywords, **values)
        if not isinstance(given, tuple | list):
            return given  # refused where cotangents are counted
        return tuple(original.join(given, dict.fromkeys(original.values)))

    return fwd, bwd

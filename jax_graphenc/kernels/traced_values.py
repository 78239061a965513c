"""By-value parameters that are traced: a copy of the kernel loads them from operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jax_graphenc.calls import arguments
from jax_graphenc.calls.code import CudaSource
from jax_graphenc.calls.values import check_loadable, traced_value_error
from jax_graphenc.kernels.copies import copied
from jax_graphenc.kernels.definition import Definition, Original
from jax_graphenc.kernels.prepare import check_call
from jax_graphenc.signature.loaded import loaded_name, loaded_parameter, with_loaded_values
from jax_graphenc.signature.types import header_of, spelling_of

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
    return copied(
        Original(definition, tuple(types), positions),
        name=loaded_name(definition.name, types),
        code=CudaSource(replace(source, text=text, headers=tuple(sorted(headers)))),
        params={
            loaded_parameter(name) if name in types else name: f"const {types[name]}*"
            if name in types
            else text
            for name, text in definition.params.items()
        },
        values={name: x for name, x in definition.defaults.items() if name not in types},
        sharding=definition.sharding_rule,
    )

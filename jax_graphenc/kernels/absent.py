"""Inputs that a call leaves out: the kernel gets null pointers for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax_graphenc.calls.sharding_rule import without_inputs
from jax_graphenc.kernels.copies import copied
from jax_graphenc.kernels.definition import Definition, Original


def completed(definition: Definition, inputs: Sequence[Any]) -> Sequence[Any]:
    """The inputs of a call, with ``None`` for the last ones whose default is a null pointer."""
    missing = len(definition.inputs) - len(inputs)
    rest = definition.inputs[len(inputs) :]
    return [*inputs, *[None] * missing] if all(p.is_optional for p in rest) else inputs


def absent_in(definition: Definition, inputs: Sequence[Any]) -> tuple[int, ...]:
    """The places of the inputs that are ``None``.

    Raises:
        TypeError: for one that cannot be.
    """
    found = tuple(i for i, x in enumerate(inputs) if x is None)
    for i in found:
        if i < len(definition.inputs) and (p := definition.inputs[i]).role == "inout":
            raise TypeError(
                f"{definition.where(i)}: an array is expected; got None. '{p.name}' is updated in "
                "place, and only an input that is const may be a null pointer"
            )
        if i < len(definition.inputs) and f"{{{p.python_name}}}" in definition.name:
            raise TypeError(
                f"{definition.where(i)} is None, so that {{{p.python_name}}} in the kernel's name, "
                f"{definition.name!r}, stands for no type: write one there"
            )
    return found


def without(definition: Definition, positions: tuple[int, ...]) -> Definition:
    """A copy of a kernel whose inputs at these places are null pointers."""
    rule = definition.sharding_rule
    return copied(
        Original(definition, absent=positions),
        absent=frozenset(definition.inputs[i].name for i in positions),
        sharding=rule and without_inputs(rule, positions),
    )

"""The user's functions as functions of a copy's operands, which differ from the kernel's inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax_graphenc.kernels.definition import Definition, Original
from jax_graphenc.kernels.derivatives import Rule, check_cotangents

_Function = Callable[..., Any]


def copied(original: Original, **changes: Any) -> Definition:
    """A copy of a definition with the functions of the user's that see all operands."""
    definition = original.definition
    vmap, reference = definition.vmap, definition.reference
    return replace(
        definition,
        reference=reference and _OfOperands(reference, original),
        vmap=_batching_rule(vmap, original) if callable(vmap) else vmap,
        original=original,
        **changes,
    )


@dataclass(frozen=True, slots=True)
class _OfOperands:
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
        flags = [bool(flag) for flag in flags]  # of an absent one, False
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
        check_cotangents(given, original.definition)
        return tuple(original.join(given, dict.fromkeys(original.values)))

    return fwd, bwd

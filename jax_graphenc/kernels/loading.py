"""By-value parameters that are traced: they become inputs, from which the kernel loads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

_Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Which operands of a kernel stand for by-value parameters of the user's.

    Attributes:
        names: of the parameters.
        positions: of the operands, in the same order, ascending.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]

    def split(self, operands: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The user's inputs, and the values by name."""
        inputs = [x for i, x in enumerate(operands) if i not in self.positions]
        at = zip(self.names, self.positions, strict=True)
        return inputs, {name: operands[i] for name, i in at}

    def join(self, inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
        """The inverse of ``split``."""
        operands = list(inputs)
        for name, i in zip(self.names, self.positions, strict=True):
            operands.insert(i, values[name])
        return operands


@dataclass(frozen=True, slots=True)
class AsKeywords:
    """A function of the user's inputs and keywords, as one of a kernel's operands."""

    function: _Function
    loaded: Loaded

    def __call__(self, *operands: Any, **keywords: Any) -> Any:
        """The function's result."""
        inputs, values = self.loaded.split(operands)
        return self.function(*inputs, **keywords, **values)


def as_keywords(value: Any, loaded: Loaded) -> Any:
    """A launch or shape of the user's, which may be a function, for a kernel's operands."""
    return AsKeywords(value, loaded) if callable(value) else value


def batching_rule(rule: _Function, loaded: Loaded) -> _Function:
    """A batching rule of the user's, for a kernel's operands."""

    def wrapped(axis_size: int, in_batched: Sequence[bool], *operands: Any, **keywords: Any) -> Any:
        flags, by_name = loaded.split(in_batched)
        inputs, values = loaded.split(operands)
        if batched := [name for name, flag in by_name.items() if flag]:
            raise TypeError(
                f"'{batched[0]}' is passed by value and differs from element to element of the "
                "batch, which a batching rule of your own does not see: take it by pointer"
            )
        return rule(axis_size, flags, *inputs, **keywords, **values)

    return wrapped


def derivative_rule(rule: Sequence[_Function], loaded: Loaded) -> tuple[_Function, ...]:
    """A derivative rule of the user's, ``(jvp,)`` or ``(fwd, bwd)``, for a kernel's operands."""
    if len(rule) == 1:

        def jvp(primals: Sequence[Any], tangents: Sequence[Any], **keywords: Any) -> Any:
            inputs, values = loaded.split(primals)
            return rule[0](tuple(inputs), tuple(loaded.split(tangents)[0]), **keywords, **values)

        return (jvp,)

    def fwd(*operands: Any, **keywords: Any) -> Any:
        inputs, values = loaded.split(operands)
        out, residuals = rule[0](*inputs, **keywords, **values)
        return out, (residuals, values)

    def bwd(kept: Any, cotangents: Any, **keywords: Any) -> Any:
        residuals, values = kept
        given = rule[1](residuals, cotangents, **keywords, **values)
        if not isinstance(given, tuple | list):
            return given  # and is refused, by whoever counts
        return tuple(loaded.join(given, dict.fromkeys(loaded.names)))

    return fwd, bwd


def without_derivative(value: Any, name: str, kernel: str) -> Any:
    """The value, whose derivative nobody has given; asking for it is an error."""

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

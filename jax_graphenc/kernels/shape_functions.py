"""Functions of the user's, of shapes and keywords: each is called with what it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def asked_for(function: Callable[..., Any]) -> list[str]:
    """The names that a function asks for; one that has a default does not ask."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some that are written in C have none
        return []
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]


def call(
    kernel: str,
    function: Callable[..., Any],
    names: Sequence[str],
    inputs: Sequence[Any],
    keywords: Mapping[str, Any],
    offered: Mapping[str, Any],
    others: Iterable[str] = (),
) -> Any:
    """Calls a function with the inputs and keywords that it names, or else with all of them.

    Args:
        kernel: whose function it is, for messages.
        function: names some of all of them, in any order; or takes all inputs by position, under
            names of its own, and all keywords. Names go first, lest an order that differs from the
            kernel's hand one input's shape out as another's.
        names: of the inputs.
        inputs: a ``jax.ShapeDtypeStruct`` each.
        keywords: of the call.
        offered: what is given only to a function that names it.
        others: what it may name beside, for messages.

    Raises:
        TypeError: for a function that asks for anything else, naming what there is.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some that are written in C have none
        return function(*inputs, **keywords)
    parameters = signature.parameters.values()
    offered = {name: value for name, value in offered.items() if name not in keywords}
    known = {**offered, **keywords, **dict(zip(names, inputs, strict=True))}
    kinds = {p.kind for p in parameters}
    if not kinds & {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}:
        asked = {p.name: known[p.name] for p in parameters if p.name in known}
        if inspect.Parameter.VAR_KEYWORD in kinds:
            asked = {**keywords, **asked}
        if _takes(signature, **asked):
            return function(**asked)
    keyword_only = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    asked = {name: offered[name] for name in keyword_only & offered.keys()}
    if _takes(signature, *inputs, **keywords, **asked):
        return function(*inputs, **keywords, **asked)
    raise TypeError(
        f"kernel '{kernel}': a function that takes {signature} cannot be called: it may ask by "
        f"name for {', '.join(dict.fromkeys((*known, *others)))}; or take all inputs by position "
        "and all keywords"
    )


def _takes(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True

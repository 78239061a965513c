"""A kernel's derivative rules: the user's own, or what its reference gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

from jax_graphenc.calls.arguments import returned
from jax_graphenc.calls.call import KernelCall
from jax_graphenc.kernels.definition import Definition

_Function = Callable[..., Any]

Rule = tuple[_Function, ...]
"""``(jvp,)`` of ``defjvp``, or ``(fwd, bwd)`` of ``defvjp``."""


def with_derivative(
    kernel: _Function,
    definition: Definition,
    rule: Rule | None,
    call: KernelCall,
    values: Mapping[str, Any],
) -> _Function:
    """A function of arrays with its derivative.

    Args:
        kernel: the function.
        definition: the kernel's.
        rule: the user's, which wins over the reference.
        call: what the function binds.
        values: the by-value parameters that a rule is given.
    """
    if rule is None:
        return kernel if call.reference is None else _with_reference(kernel, call)
    if len(rule) == 1:
        forward = jax.custom_jvp(kernel)
        forward.defjvp(_noting("jvp", rule[0], definition, values))
        return forward
    fwd, bwd = rule
    reverse = jax.custom_vjp(kernel)
    reverse.defvjp(
        _noting("fwd", fwd, definition, values),
        _noting("bwd", _counting_cotangents(bwd, definition), definition, values),
    )
    return reverse


def _with_reference(kernel: _Function, call: KernelCall) -> _Function:
    derived = jax.custom_jvp(kernel)

    @derived.defjvp
    def jvp(primals: Any, tangents: Any) -> Any:
        _, out = jax.jvp(lambda *xs: returned(call.run_reference(*xs)), primals, tangents)
        return derived(*primals), out

    return derived


def _noting(
    what: str, rule: _Function, definition: Definition, values: Mapping[str, Any]
) -> _Function:
    """A rule with the by-value parameters; its errors name the kernel."""

    def noting(*arrays: Any) -> Any:
        try:
            return rule(*arrays, **values)
        except Exception as error:
            names = ", ".join((*values, *definition.traced_values)) or "nothing"
            error.add_note(
                f"in the rule {what} of kernel '{definition.title}', which is given by keyword: "
                f"{names}"
            )
            raise

    return noting


def _counting_cotangents(bwd: _Function, definition: Definition) -> _Function:
    def counting(residuals: Any, cotangents: Any, **keywords: Any) -> Any:
        given = bwd(residuals, cotangents, **keywords)
        check_cotangents(given, definition)
        return given

    return counting


def check_cotangents(given: Any, definition: Definition) -> None:
    """Refuses what is no tuple of a cotangent for each input.

    Raises:
        TypeError: naming the inputs.
    """
    inputs = [p.name for p in definition.inputs]
    if isinstance(given, tuple | list) and len(given) == len(inputs):
        return
    many = len(given) if isinstance(given, tuple | list) else "no tuple"
    raise TypeError(
        f"kernel '{definition.title}': bwd is to return a tuple of cotangents, one for each "
        f"input ({', '.join(inputs)}); got {many}"
    )

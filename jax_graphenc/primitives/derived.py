"""What JAX's transformations make of a jaxpr: other jaxprs, kept as long as the first.

A derivative or batching rule may use arrays that are no operands. So what is derived is a jaxpr
without constants together with the arrays that it takes before its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Var, jaxpr_as_fun
from jax.interpreters import partial_eval

from jax_graphenc.base.jax_compat import batch_jaxpr, partial_eval_jaxpr
from jax_graphenc.base.kept import kept

Mask = tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Traced:
    """A function that was traced.

    Attributes:
        jaxpr: closed, without constants.
        constants: what the function closes over: the jaxpr's first operands.
    """

    jaxpr: ClosedJaxpr
    constants: tuple[Any, ...]


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """Traces a function of arrays, or of their types."""
    return traced(jax.make_jaxpr(function)(*args, **kwargs))


def traced(closed: ClosedJaxpr) -> Traced:
    """A jaxpr, whose constants become its first operands."""
    jaxpr = closed.jaxpr.replace(
        constvars=[], invars=[*closed.jaxpr.constvars, *closed.jaxpr.invars]
    )
    return Traced(ClosedJaxpr(jaxpr, ()), tuple(closed.consts))


def split(mask: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The values where the mask is set, and the others."""
    pairs = list(zip(mask, values, strict=True))
    return [value for m, value in pairs if m], [value for m, value in pairs if not m]


def merge(mask: Sequence[bool], chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The inverse of ``split``."""
    first, second = iter(chosen), iter(others)
    return [next(first) if m else next(second) for m in mask]


@kept
def depends(jaxpr: ClosedJaxpr, operands: Mask) -> Mask:
    """Which results may depend on any of these operands.

    An effect counts as an operand: a collective such as ``axis_index`` brings in the axis.
    """
    reached = set(split(operands, jaxpr.jaxpr.invars)[0])
    for eqn in jaxpr.jaxpr.eqns:
        if eqn.effects or any(isinstance(v, Var) and v in reached for v in eqn.invars):
            reached.update(eqn.outvars)
    return tuple(isinstance(v, Var) and v in reached for v in jaxpr.jaxpr.outvars)


@kept
def differentiated(jaxpr: ClosedJaxpr, nonzero: Mask, differentiable: Mask) -> Traced:
    """From operands and tangents to results and tangents.

    Args:
        jaxpr: the function.
        nonzero: the operands whose tangents are not zero, and are taken.
        differentiable: the results whose tangents are wanted.
    """
    function = jaxpr_as_fun(jaxpr)
    tangent_avals = [aval.to_tangent_aval() for aval in split(nonzero, jaxpr.in_avals)[0]]

    def jvp(operands: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        varied, fixed = split(nonzero, operands)

        def of_varied(*varied: Any) -> tuple[list[Any], list[Any]]:
            return split(differentiable, function(*merge(nonzero, varied, fixed)))

        results, tangents_out, others = jax.jvp(of_varied, varied, tangents, has_aux=True)
        return merge(differentiable, results, others), tangents_out

    return trace(jvp, jaxpr.in_avals, tangent_avals)


@dataclass(frozen=True, slots=True)
class Halves:
    """A function, split into what its known operands are enough for and the rest.

    Attributes:
        known: from the known operands to the known results and residuals.
        unknown: from residuals and the other operands to the other results.
        places: where each residual is in ``[*constants, *operands, *results, *residuals]`` of the
            known half.
        unknown_results: which results the other ones are.
    """

    known: Traced
    unknown: Traced
    places: tuple[int, ...]
    unknown_results: Mask


@kept
def halves(jaxpr: ClosedJaxpr, unknown_operands: Mask) -> Halves:
    """Splits a function as JAX splits a jitted one, to evaluate a half and to defer the other."""
    known, unknown, unknown_results, residuals = partial_eval_jaxpr(jaxpr, unknown_operands)
    whole = traced(known)
    short, places = _without_known(whole.jaxpr, len(known.out_avals) - len(residuals))
    now = Traced(short, whole.constants)
    return Halves(now, traced(unknown), places, tuple(unknown_results))


def _without_known(jaxpr: ClosedJaxpr, results: int) -> tuple[ClosedJaxpr, tuple[int, ...]]:
    """Drops residuals that are operands or results: JAX sees to repeated ones.

    Otherwise a scan would stack each of them, and an eager derivative copy it.

    Returns:
        The jaxpr, and where each residual is in ``[*operands, *results, *residuals]``.
    """
    inner = jaxpr.jaxpr
    known = [*inner.invars, *inner.outvars[:results]]
    place = {v: i for i, v in enumerate(known) if isinstance(v, Var)}
    places = []
    for residual in inner.outvars[results:]:
        # A literal, which has no hash, is a result anew.
        if isinstance(residual, Var) and residual in place:
            places.append(place[residual])
        else:
            places.append(len(known))
            known.append(residual)
    return ClosedJaxpr(inner.replace(outvars=known[len(inner.invars) :]), ()), tuple(places)


@kept
def transposed(jaxpr: ClosedJaxpr, linear: Mask, cotangent_avals: tuple[Any, ...]) -> Traced:
    """From the other operands and cotangents of the results to those of the linear operands."""
    function = jaxpr_as_fun(jaxpr)
    linear_avals, other_avals = split(linear, jaxpr.in_avals)

    def of_cotangents(others: Any, cotangents: Any) -> Any:
        def of_linear(*operands: Any) -> Any:
            return function(*merge(linear, operands, others))

        return jax.linear_transpose(of_linear, *linear_avals)(cotangents)

    return trace(of_cotangents, other_avals, list(cotangent_avals))


@kept
def batched(jaxpr: ClosedJaxpr, axis: Any, mapped: Mask) -> tuple[Traced, Mask]:
    """Maps over axis 0 of some operands.

    Args:
        jaxpr: the function.
        axis: as JAX gives it to a batching rule.
        mapped: which operands have the axis.

    Returns:
        The function, and which of its results have the axis.
    """
    closed, results = batch_jaxpr(jaxpr, axis, mapped)
    return traced(closed), tuple(results)


@kept
def pruned(jaxpr: ClosedJaxpr, used: Mask) -> tuple[ClosedJaxpr, Mask]:
    """What these results need, and which operands that is."""
    left, needed = partial_eval.dce_jaxpr(jaxpr.jaxpr, list(used))
    return ClosedJaxpr(left, ()), tuple(needed)

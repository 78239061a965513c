"""``region_p``: a call primitive that keeps a traced function whole until it is lowered.

``region_p.bind(*operands, jaxpr=, name=, strict=)`` calls a closed jaxpr that has no constants. A
transformation makes another region of it, whose jaxpr JAX derives from the first: kernels keep
their own derivative and batching rules, and what is lowered in the end is one jaxpr to cut into
programs. Derived jaxprs are kept as long as what they come from, so that a function that is
traced, differentiated or mapped again shares them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, Var, jaxpr_as_fun
from jax.interpreters import ad, batching, partial_eval, xla

from jax_graphenc.base.kept import kept

region_p = Primitive("cuda_region")
region_p.multiple_results = True
region_p.def_impl(functools.partial(xla.apply_primitive, region_p))

Mask = tuple[bool, ...]


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[ClosedJaxpr, list[Any]]:
    """Traces a function of arrays, or of their types.

    Returns:
        A closed jaxpr without constants, and the arrays that it takes before the leaves of the
        arguments: what the function closes over.
    """
    closed = jax.make_jaxpr(function)(*args, **kwargs)
    jaxpr = closed.jaxpr.replace(constvars=[], invars=[*closed.constvars, *closed.invars])
    return ClosedJaxpr(jaxpr, ()), list(closed.consts)


def _trace_closed(function: Callable[..., Any], *avals: Any) -> ClosedJaxpr:
    """Traces what closes over nothing but arrays of this process, of which there are none."""
    jaxpr, constants = trace(function, *avals)
    assert not constants
    return jaxpr


def _split(mask: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The values where the mask is set, and the others."""
    pairs = list(zip(mask, values, strict=True))
    return [value for m, value in pairs if m], [value for m, value in pairs if not m]


def _merge(mask: Sequence[bool], chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The inverse of ``_split``."""
    first, second = iter(chosen), iter(others)
    return [next(first) if m else next(second) for m in mask]


@kept
def _depends(jaxpr: ClosedJaxpr, operands: Mask) -> Mask:
    """Which results may depend on any of these operands.

    An effect counts as an operand: a collective such as ``axis_index`` brings in the axis.
    """
    reached = set(_split(operands, jaxpr.jaxpr.invars)[0])
    for eqn in jaxpr.jaxpr.eqns:
        if eqn.effects or any(isinstance(v, Var) and v in reached for v in eqn.invars):
            reached.update(eqn.outvars)
    return tuple(isinstance(v, Var) and v in reached for v in jaxpr.jaxpr.outvars)


def check_no_refs(jaxpr: ClosedJaxpr, name: str) -> None:
    """Refuses mutable arrays, of the caller and made inside.

    Raises:
        TypeError: if there are any.
    """
    if any(_is_ref(v.aval) for v in jaxpr.jaxpr.invars) or _makes_refs(jaxpr.jaxpr):
        raise TypeError(
            f"region '{name}' uses a mutable array (jax.new_ref), which a region cannot: read and "
            "write it outside, as in ref[...] = step(ref[...])"
        )


def _is_ref(aval: Any) -> bool:
    return hasattr(aval, "inner_aval")  # the type of jax.Ref has no public name


def _makes_refs(jaxpr: Any) -> bool:
    # Without an effect they are the equation's own business, as in Pallas.
    return any(
        any(_is_ref(v.aval) for v in eqn.outvars)
        or any(
            _makes_refs(part)
            for part in jax.tree.leaves(list(eqn.params.values()))
            if isinstance(part, ClosedJaxpr | Jaxpr)
        )
        for eqn in jaxpr.eqns
        if eqn.effects
    )


def _abstract_eval(*operands: Any, jaxpr: ClosedJaxpr, name: str, strict: bool) -> Any:
    # The jaxpr's own types: they carry shardings and the mesh axes that a result varies over.
    return jaxpr.out_avals, jaxpr.effects


region_p.def_effectful_abstract_eval(_abstract_eval)

# ---------------------------------------------------------------------- derivatives


def _has_tangent(aval: Any) -> bool:
    return bool(aval.to_tangent_aval().dtype != jax.dtypes.float0)


@kept
def _linearize(
    jaxpr: ClosedJaxpr, nonzero: Mask, differentiable: Mask
) -> tuple[ClosedJaxpr, ClosedJaxpr, list[int]]:
    """Splits a derivative into what needs no tangent and what is linear in them.

    Args:
        jaxpr: the function.
        nonzero: the operands whose tangents are not zero.
        differentiable: the results whose tangents are wanted.

    Returns:
        The forward jaxpr, from operands to results and residuals; the linear one, from residuals
        and the nonzero tangents to the differentiable results'; and where each of the latter's
        residuals is in ``[*operands, *results, *residuals]``.
    """
    function = jaxpr_as_fun(jaxpr)
    trees = []

    def forward(*operands: Any) -> tuple[list[Any], list[Any]]:
        varied, fixed = _split(nonzero, operands)

        def of_varied(*varied: Any) -> tuple[list[Any], list[Any]]:
            return _split(differentiable, function(*_merge(nonzero, varied, fixed)))

        results, linear, others = jax.linearize(of_varied, *varied, has_aux=True)
        # jax.linearize returns a tree_util.Partial: its leaves are the residuals.
        residuals, tree = jax.tree.flatten(linear)
        trees.append(tree)
        return _merge(differentiable, results, others), residuals

    traced = _trace_closed(forward, *jaxpr.in_avals)
    residual_avals = traced.out_avals[len(jaxpr.out_avals) :]
    tangent_avals = [aval.to_tangent_aval() for aval in _split(nonzero, jaxpr.in_avals)[0]]

    def linear(residuals: Any, tangents: Any) -> Any:
        return jax.tree.unflatten(trees[0], residuals)(*tangents)

    forward_jaxpr, places = _without_known(traced, len(jaxpr.out_avals))
    return forward_jaxpr, _trace_closed(linear, residual_avals, tangent_avals), places


def _without_known(jaxpr: ClosedJaxpr, results: int) -> tuple[ClosedJaxpr, list[int]]:
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
    return ClosedJaxpr(inner.replace(outvars=known[len(inner.invars) :]), ()), places


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, name: str, strict: bool
) -> tuple[list[Any], list[Any]]:
    """A region for the results and residuals, and a linear one for the tangents.

    Only the second has tangents, so that JAX needs no rule of ours to evaluate the first and defer
    the second: in reverse mode, scan, checkpoint and jit.
    """
    nonzero = tuple(type(t) is not ad.Zero for t in tangents)
    depends = _depends(jaxpr, nonzero)
    differentiable = tuple(
        d and _has_tangent(aval) for d, aval in zip(depends, jaxpr.out_avals, strict=True)
    )
    zeros = [ad.Zero(aval.to_tangent_aval()) for aval in jaxpr.out_avals]
    if not any(differentiable):
        return region_p.bind(*primals, jaxpr=jaxpr, name=name, strict=strict), zeros
    forward, linear, places = _linearize(jaxpr, nonzero, differentiable)
    out = region_p.bind(*primals, jaxpr=forward, name=name, strict=False)
    known = [*primals, *out]
    tangents_out = region_p.bind(
        *(known[place] for place in places),
        *_split(nonzero, tangents)[0],
        jaxpr=linear,
        name=f"jvp({name})",
        strict=False,
    )
    return out[: len(zeros)], _merge(differentiable, tangents_out, _split(differentiable, zeros)[1])


ad.primitive_jvps[region_p] = _jvp


@kept
def _transposed(jaxpr: ClosedJaxpr, linear: Mask, cotangent_avals: tuple[Any, ...]) -> ClosedJaxpr:
    """From the other operands and cotangents of the results to those of the linear operands."""
    function = jaxpr_as_fun(jaxpr)
    linear_avals, other_avals = _split(linear, jaxpr.in_avals)

    def transposed(others: Any, cotangents: Any) -> Any:
        def of_linear(*operands: Any) -> Any:
            return function(*_merge(linear, operands, others))

        return jax.linear_transpose(of_linear, *linear_avals)(cotangents)

    return _trace_closed(transposed, other_avals, list(cotangent_avals))


def _transpose(
    cotangents: Sequence[Any], *operands: Any, jaxpr: ClosedJaxpr, name: str, strict: bool
) -> list[Any]:
    nonzero = tuple(type(ct) is not ad.Zero for ct in cotangents)
    undefined = [ad.is_undefined_primal(operand) for operand in operands]
    # What leads to zero cotangents alone is left out, with the operands that only it needs.
    pruned, needed = _pruned(jaxpr, nonzero)
    linear = tuple(_split(needed, undefined)[0])
    out: list[Any] = [
        ad.Zero(aval.to_ct_aval()) if u else None
        for u, aval in zip(undefined, jaxpr.in_avals, strict=True)
    ]
    if not any(linear):
        return out
    given = _split(nonzero, cotangents)[0]
    bound = region_p.bind(
        *_split(linear, _split(needed, operands)[0])[1],
        *given,
        jaxpr=_transposed(pruned, linear, tuple(map(jax.typeof, given))),
        name=f"transpose({name})",
        strict=False,
    )
    wanted = [u and n for u, n in zip(undefined, needed, strict=True)]
    return _merge(wanted, bound, _split(wanted, out)[1])


ad.primitive_transposes[region_p] = _transpose

# ---------------------------------------------------------------------- batching


@kept
def _batched(
    jaxpr: ClosedJaxpr, avals: tuple[Any, ...], mapped: Mask, size: int, name: Any, spmd_name: Any
) -> ClosedJaxpr:
    """Maps over axis 0 of some operands, and of the results that may depend on them."""

    def axes(mask: Mask) -> list[int | None]:
        return [0 if m else None for m in mask]

    function = jax.vmap(
        lambda *operands: jaxpr_as_fun(jaxpr)(*operands),
        in_axes=axes(mapped),
        out_axes=axes(_depends(jaxpr, mapped)),
        axis_name=name,
        axis_size=size,
        spmd_axis_name=spmd_name,
    )
    return _trace_closed(function, *avals)


def _batch(
    axis: Any,
    operands: Sequence[Any],
    dims: Sequence[int | None],
    *,
    jaxpr: ClosedJaxpr,
    name: str,
    strict: bool,
) -> tuple[list[Any], list[int | None]]:
    moved = [
        x if d is None else jax.numpy.moveaxis(x, d, 0) for x, d in zip(operands, dims, strict=True)
    ]
    mapped = tuple(d is not None for d in dims)
    avals = tuple(map(jax.typeof, moved))
    batched = _batched(jaxpr, avals, mapped, axis.size, axis.name, axis.spmd_name)
    results = region_p.bind(*moved, jaxpr=batched, name=name, strict=False)
    return results, [0 if d else None for d in _depends(jaxpr, mapped)]


# The rule that also sees the axis: its name, for collectives, and its size, for no mapped operand.
batching.fancy_primitive_batchers[region_p] = _batch

# ---------------------------------------------------------------------- dead code


@kept
def _pruned(jaxpr: ClosedJaxpr, used: Mask) -> tuple[ClosedJaxpr, Mask]:
    """What these results need, and which operands that is."""
    pruned, needed = partial_eval.dce_jaxpr(jaxpr.jaxpr, list(used))
    return ClosedJaxpr(pruned, ()), tuple(needed)


def _dce(used: Sequence[bool], *rest: Any) -> tuple[list[bool], JaxprEqn | None]:
    eqn = rest[-1]  # JAX 0.12 passes the live operands before it
    jaxpr, needed = _pruned(eqn.params["jaxpr"], tuple(used))
    if not any(used) and not jaxpr.jaxpr.eqns:
        return [False] * len(eqn.invars), None
    return list(needed), eqn.replace(
        invars=_split(needed, eqn.invars)[0],
        outvars=_split(used, eqn.outvars)[0],
        params={**eqn.params, "jaxpr": jaxpr},
        effects=jaxpr.effects,
    )


partial_eval.dce_rules[region_p] = _dce

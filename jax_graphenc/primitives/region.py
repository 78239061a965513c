"""``region_p``: a call primitive that keeps a traced function whole until it is lowered.

``region_p.bind(*operands, jaxpr=, name=, strict=)`` calls a closed jaxpr that has no constants. A
transformation makes another region of it, whose jaxpr JAX derives from the first (``derived.py``):
kernels keep their own derivative and batching rules, and what is lowered in the end is one jaxpr to
cut into programs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive
from jax.interpreters import ad, batching, partial_eval, xla

from jax_graphenc.base.jax_compat import let_checkify_in, let_policies_choose, of_arrays
from jax_graphenc.primitives.derived import (
    Traced,
    batched,
    depends,
    differentiated,
    halves,
    merge,
    pruned,
    split,
    traced,
    transposed,
)

region_p = Primitive("cuda_region")
region_p.multiple_results = True
region_p.def_impl(functools.partial(xla.apply_primitive, region_p))


def call_region(function: Traced, *operands: Any, name: str, strict: bool = False) -> list[Any]:
    """Calls a traced function as a region.

    Regions that are derived from others are not strict: their operations are not the user's.
    """
    results: list[Any] = region_p.bind(
        *function.constants, *operands, jaxpr=function.jaxpr, name=name, strict=strict
    )
    return results


def _abstract_eval(*operands: Any, jaxpr: ClosedJaxpr, name: str, strict: bool) -> Any:
    # The jaxpr's own types: they carry shardings and the mesh axes that a result varies over.
    return jaxpr.out_avals, jaxpr.effects


region_p.def_effectful_abstract_eval(_abstract_eval)


def _to_lojax(*operands: Any, jaxpr: ClosedJaxpr, name: str, strict: bool) -> list[Any]:
    return call_region(traced(of_arrays(jaxpr)), *operands, name=name, strict=strict)


region_p.to_lojax = _to_lojax  # type: ignore[method-assign]

# ---------------------------------------------------------------------- derivatives


def _has_tangent(aval: Any) -> bool:
    return bool(aval.to_tangent_aval().dtype != jax.dtypes.float0)


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, name: str, strict: bool
) -> tuple[list[Any], list[Any]]:
    nonzero = tuple(type(t) is not ad.Zero for t in tangents)
    differentiable = tuple(
        d and _has_tangent(aval)
        for d, aval in zip(depends(jaxpr, nonzero), jaxpr.out_avals, strict=True)
    )
    zeros = [ad.Zero(aval.to_tangent_aval()) for aval in jaxpr.out_avals]
    if not any(differentiable):
        return region_p.bind(*primals, jaxpr=jaxpr, name=name, strict=strict), zeros
    made = differentiated(jaxpr, nonzero, differentiable)
    given = split(nonzero, tangents)[0]
    out = call_region(made, *primals, *given, name=f"jvp({name})")
    count = len(zeros)
    return out[:count], merge(differentiable, out[count:], split(differentiable, zeros)[1])


ad.primitive_jvps[region_p] = _jvp


def _partial_eval(
    trace: Any, *tracers: Any, jaxpr: ClosedJaxpr, name: str, strict: bool
) -> list[Any]:
    """A region that is evaluated now, and a deferred one: in reverse mode, of the tangents."""
    unknown = tuple(not tracer.is_known() for tracer in tracers)
    made = halves(jaxpr, unknown)
    others, known = split(unknown, tracers)
    operands = [tracer.pval.get_known() for tracer in known]
    results = call_region(made.known, *operands, name=_without_tangents(name))
    values = [*made.known.constants, *operands, *results]
    residuals = [values[place] for place in made.places]
    params = {"jaxpr": made.unknown.jaxpr, "name": name, "strict": False}
    operands = [*made.unknown.constants, *residuals, *others]
    deferred = trace.default_process_primitive(region_p, operands, params)
    return merge(made.unknown_results, deferred, results[: made.unknown_results.count(False)])


def _without_tangents(name: str) -> str:
    return name[len("jvp(") : -1] if name.startswith("jvp(") else name


partial_eval.custom_partial_eval_rules[region_p] = _partial_eval
let_policies_choose(region_p, "jaxpr", lambda params: {**params, "strict": False})


def _transpose(
    cotangents: Sequence[Any], *operands: Any, jaxpr: ClosedJaxpr, name: str, strict: bool
) -> list[Any]:
    nonzero = tuple(type(ct) is not ad.Zero for ct in cotangents)
    undefined = [ad.is_undefined_primal(operand) for operand in operands]
    # What leads to zero cotangents alone is left out, with the operands that only it needs.
    left, needed = pruned(jaxpr, nonzero)
    linear = tuple(split(needed, undefined)[0])
    out: list[Any] = [
        ad.Zero(aval.to_ct_aval()) if u else None
        for u, aval in zip(undefined, jaxpr.in_avals, strict=True)
    ]
    if not any(linear):
        return out
    given = split(nonzero, cotangents)[0]
    others = split(linear, split(needed, operands)[0])[1]
    made = transposed(left, linear, tuple(map(jax.typeof, given)))
    bound = call_region(made, *others, *given, name=f"transpose({name})")
    wanted = [u and n for u, n in zip(undefined, needed, strict=True)]
    return merge(wanted, bound, split(wanted, out)[1])


ad.primitive_transposes[region_p] = _transpose

# ---------------------------------------------------------------------- batching


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
    made, results_mapped = batched(jaxpr, axis, mapped)
    results = call_region(made, *moved, name=name)
    return results, [0 if m else None for m in results_mapped]


# The rule that also sees the axis: its name, for collectives, and its size, for no mapped operand.
batching.fancy_primitive_batchers[region_p] = _batch

# ---------------------------------------------------------------------- checks


def _checked(jaxpr: ClosedJaxpr, *operands: Any, name: str, strict: bool) -> list[Any]:
    return call_region(traced(jaxpr), *operands, name=name)


let_checkify_in(region_p, "jaxpr", _checked)

# ---------------------------------------------------------------------- dead code


def _dce(used: Sequence[bool], *rest: Any) -> tuple[list[bool], JaxprEqn | None]:
    eqn = rest[-1]  # JAX 0.12 passes the live operands before it
    jaxpr, needed = pruned(eqn.params["jaxpr"], tuple(used))
    if not any(used) and not jaxpr.jaxpr.eqns:
        return [False] * len(eqn.invars), None
    return list(needed), eqn.replace(
        invars=split(needed, eqn.invars)[0],
        outvars=split(used, eqn.outvars)[0],
        params={**eqn.params, "jaxpr": jaxpr},
        effects=jaxpr.effects,
    )


partial_eval.dce_rules[region_p] = _dce

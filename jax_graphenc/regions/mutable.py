"""Mutable arrays (``jax.new_ref``), which a region cannot use."""

from __future__ import annotations

from typing import Any

from jax.extend.core import ClosedJaxpr

from jax_graphenc.regions.jaxprs import inner_jaxprs


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
        or any(_makes_refs(inner.jaxpr) for inner in inner_jaxprs(eqn))
        for eqn in jaxpr.eqns
        if eqn.effects
    )

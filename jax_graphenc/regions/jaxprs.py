"""What is asked of jaxprs: calls, kernels inside, and what stands between two equations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
from jax.extend import core

from jax_graphenc.base.kept import kept
from jax_graphenc.regions.literals import Atom, is_scalar_literal, number

# Calls that mean no more than the equations inside, by the parameter that holds these.
_CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "cuda_region": "jaxpr",
}


def closed(jaxpr: Any) -> core.ClosedJaxpr:
    """A jaxpr with its constants, of which an open one has none."""
    return jaxpr if hasattr(jaxpr, "consts") else core.ClosedJaxpr(jaxpr, ())


def inner_call(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """The jaxpr of a call that means no more than the equations inside."""
    param = _CALLS.get(eqn.primitive.name)
    return closed(eqn.params[param]) if param in eqn.params else None


def is_jaxpr(value: Any) -> bool:
    """Whether a parameter is a jaxpr, closed or not."""
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def inner_jaxprs(eqn: core.JaxprEqn) -> Iterator[core.ClosedJaxpr]:
    """The jaxprs in an equation's parameters, which may be trees of them."""
    for part in jax.tree.leaves(list(eqn.params.values())):
        if is_jaxpr(part):
            yield closed(part)


def known_branch(eqn: core.JaxprEqn, operands: Sequence[Atom]) -> core.ClosedJaxpr | None:
    """The branch that a number chooses."""
    if eqn.primitive.name != "cond" or not is_scalar_literal(operands[0]):
        return None
    branches = eqn.params["branches"]
    return closed(branches[min(max(int(number(operands[0])), 0), len(branches) - 1)])


def holds_kernel(eqn: core.JaxprEqn) -> bool:
    """Whether an equation has a jaxpr with a kernel, however deep."""
    return any(has_kernel(inner.jaxpr) for inner in inner_jaxprs(eqn))


@kept
def has_kernel(jaxpr: core.Jaxpr) -> bool:
    """Whether a kernel is in a jaxpr, however deep."""
    return any(eqn.primitive.name == "cuda_kernel" or holds_kernel(eqn) for eqn in jaxpr.eqns)


def between(eqns: Sequence[core.JaxprEqn], ends: Sequence[bool]) -> list[bool]:
    """Which equations must run after one of the ends and before another.

    Args:
        eqns: in an order in which they may run. Those that have effects keep it.
        ends: which of them are ends; these do not count as being between.
    """
    behind: set[Any] = set()
    waits = []
    for eqn, end in zip(eqns, ends, strict=True):
        waits.append(not behind.isdisjoint(_taken(eqn)))
        if end or waits[-1]:
            behind.update(_given(eqn))
    needed: set[Any] = set()
    found = []
    for eqn, end, wait in reversed(list(zip(eqns, ends, waits, strict=True))):
        leads = not needed.isdisjoint(_given(eqn))
        if end or leads:
            needed.update(_taken(eqn))
        found.append(wait and leads and not end)
    return found[::-1]


_EFFECTS = object()  # stands for what one equation with effects leaves to the next


def _taken(eqn: core.JaxprEqn) -> Iterator[Any]:
    yield from (atom for atom in eqn.invars if isinstance(atom, core.Var))
    if eqn.effects:
        yield _EFFECTS


def _given(eqn: core.JaxprEqn) -> Iterator[Any]:
    yield from eqn.outvars
    if eqn.effects:
        yield _EFFECTS

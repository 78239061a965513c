"""What an equation means to a program: a kernel, a view, a constant, a sum, or nothing.

Equations are told apart by the names of their primitives, which are stable across JAX's versions
where the objects move about.
"""

from __future__ import annotations

import enum
import math
from typing import Any

from jax.extend import core

from jax_graphenc.regions.literals import is_scalar_literal, pattern_of
from jax_graphenc.regions.views import view_offset


class Kind(enum.Enum):
    """What a program does with an equation."""

    FOREIGN = "nothing: it is left to XLA"
    KERNEL = "launches a kernel"
    SUM = "adds two arrays"
    CONCATENATE = "puts arrays one after the other; of one, a copy"
    VIEW = "nothing: the result is a contiguous part of the operand"
    FILL = "fills memory with one value"
    BARRIER = "nothing: it keeps XLA from merging what comes after it with what comes before"


# What joins arrays, by the parameter that holds the axis.
_JOINS = {"concatenate": "dimension", "stack": "axis"}

# dtypes that the built-in sum takes, with the dtype that it adds and how many of these it has.
SUMMED: dict[str, tuple[str, int]] = {
    "float32": ("float32", 1),
    "float64": ("float64", 1),
    "complex64": ("float32", 2),
    "complex128": ("float64", 2),
}


def kind_of(eqn: core.JaxprEqn) -> Kind:
    """What a program does with an equation that is no call."""
    name = eqn.primitive.name
    aval: Any = eqn.outvars[0].aval if eqn.outvars else None
    invars: list[Any] = eqn.invars
    if name == "cuda_kernel":
        return Kind.KERNEL
    if name == "optimization_barrier":
        return Kind.BARRIER
    if eqn.effects or len(eqn.outvars) != 1:
        return Kind.FOREIGN
    if view_offset(eqn) is not None:
        return Kind.VIEW
    if name == "broadcast_in_dim" and is_scalar_literal(invars[0]):
        return Kind.FILL if pattern_of(invars[0].val, aval.dtype) else Kind.FOREIGN
    if name == "add_any" and str(aval.dtype) in SUMMED:
        return Kind.SUM
    if name == "copy" or (name in _JOINS and _is_leading(eqn, eqn.params[_JOINS[name]])):
        return Kind.CONCATENATE
    return Kind.FOREIGN


def _is_leading(eqn: core.JaxprEqn, axis: int) -> bool:
    """Whether pieces that are joined along an axis end up one after the other in memory."""
    aval: Any = eqn.outvars[0].aval
    return bool(math.prod(aval.shape[:axis]) == 1)

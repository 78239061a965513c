"""A counted loop as its iterations, whose rows are views and whose results are one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from jax.extend import core

from jax_graphenc.regions.literals import Atom, is_scalar_literal
from jax_graphenc.regions.scan import Scan


class Emitter(Protocol):
    """What collects the equations."""

    def inline(self, jaxpr: core.ClosedJaxpr, operands: Sequence[Atom]) -> list[Atom]:
        """Adds a jaxpr's equations, with these operands; returns its outputs."""

    def emit(self, eqn: core.JaxprEqn) -> None:
        """Adds an equation as it is."""


def unroll(into: Emitter, eqn: core.JaxprEqn, scan: Scan, operands: Sequence[Atom]) -> list[Atom]:
    """Adds the iterations of a loop, one after the other; returns its results."""
    consts, carry, stacked = scan.split(operands)
    columns: list[list[Atom]] = [[] for _ in range(scan.stacks)]
    inputs = scan.body.jaxpr.invars[len(consts) + len(carry) :]
    order = range(scan.length)
    for i in reversed(order) if scan.reverse else order:
        rows = [_row(into, eqn, x, i, var.aval) for x, var in zip(stacked, inputs, strict=True)]
        made = into.inline(scan.body, [*consts, *carry, *rows])
        carry = made[: len(carry)]
        for column, value in zip(columns, made[len(carry) :], strict=True):
            column.append(value)
    outs = eqn.outvars[len(carry) :]
    stacks = [
        _stack(into, eqn, column[::-1] if scan.reverse else column, out.aval)
        for column, out in zip(columns, outs, strict=True)
    ]
    return [*carry, *stacks]


def _row(into: Emitter, eqn: core.JaxprEqn, stacked: Atom, i: int, aval: Any) -> Atom:
    """Element ``i`` of a stacked operand, as a view."""
    shape = stacked.aval.shape
    first = (i, *(0 for _ in shape[1:]))
    params = {
        "start_indices": first,
        "limit_indices": (i + 1, *shape[1:]),
        "strides": None,
    }
    row = _new(into, eqn, "slice_p", params, [stacked], aval.update(shape=(1, *aval.shape)))
    return _reshaped(into, eqn, row, aval)


def _stack(into: Emitter, eqn: core.JaxprEqn, column: Sequence[Atom], aval: Any) -> Atom:
    """Values one above the other. A dropped result costs nothing: nothing reads it."""
    one = aval.update(shape=(1, *aval.shape[1:]))
    rows = [_reshaped(into, eqn, value, one) for value in column]
    return _new(into, eqn, "concatenate_p", {"dimension": 0}, rows, aval)


def _reshaped(into: Emitter, eqn: core.JaxprEqn, value: Atom, aval: Any) -> Atom:
    if is_scalar_literal(value):
        params = {"shape": aval.shape, "broadcast_dimensions": (), "sharding": None}
        return _new(into, eqn, "broadcast_in_dim_p", params, [value], aval)
    params = {"new_sizes": aval.shape, "dimensions": None, "sharding": None}
    return _new(into, eqn, "reshape_p", params, [value], aval)


def _new(
    into: Emitter, at: core.JaxprEqn, name: str, params: Any, operands: list[Atom], aval: Any
) -> core.Var:
    result = core.Var(aval)
    primitive = getattr(core.primitives, name)
    into.emit(
        core.new_jaxpr_eqn(operands, [result], primitive, params, core.no_effects, at.source_info)
    )
    return result

"""A region as one list of equations: calls inlined, counted loops of kernels unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend import core

from jax_graphenc.base.kept import kept
from jax_graphenc.regions.equations import (
    Atom,
    Kind,
    fold,
    is_scalar_literal,
    kind_of,
    static_slice,
)
from jax_graphenc.regions.jaxprs import holds_kernel, inner_call
from jax_graphenc.regions.loops import LoopCost, Scan, cost_of_loop, in_larger_steps


@dataclass(frozen=True, slots=True)
class FlatEquation:
    """An equation in which no call is left, with what a program does with it."""

    eqn: core.JaxprEqn
    kind: Kind


class Flattener:
    """Collects the equations of a jaxpr.

    Args:
        max_unrolled_nodes: loops of more nodes are unrolled in part.
        is_foreign: whether a kernel is left to XLA, as one that runs its reference is.
    """

    def __init__(
        self, max_unrolled_nodes: int, is_foreign: Callable[[core.JaxprEqn], bool]
    ) -> None:
        self.equations: list[FlatEquation] = []
        self._max_nodes = max_unrolled_nodes
        self._is_foreign = is_foreign

    def inline(self, jaxpr: core.ClosedJaxpr, operands: Sequence[Atom]) -> list[Atom]:
        """Adds a jaxpr's equations, with these operands for its inputs; returns its outputs."""
        env: dict[core.Var, Atom] = dict(zip(jaxpr.jaxpr.invars, operands, strict=True))
        for var, value in zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True):
            env[var] = core.Literal(value, var.aval)

        def read(atom: Atom) -> Atom:
            return atom if isinstance(atom, core.Literal) else env[atom]

        for eqn in jaxpr.jaxpr.eqns:
            results = self._add(eqn, [read(atom) for atom in eqn.invars])
            env.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.jaxpr.outvars]

    def _add(self, eqn: core.JaxprEqn, operands: list[Atom]) -> Sequence[Atom]:
        if (known := fold(eqn, operands)) is not None:
            return [known]
        inner = inner_call(eqn)
        if inner is not None and (holds_kernel(inner) or _is_neutral(inner.jaxpr)):
            return self.inline(inner, operands)
        if eqn.primitive.name == "scan" and (loop := self._loop(eqn, operands)):
            return loop
        eqn = static_slice(eqn, operands) or eqn
        outvars = [v if isinstance(v, core.DropVar) else core.Var(v.aval) for v in eqn.outvars]
        self.emit(eqn.replace(invars=operands[: len(eqn.invars)], outvars=outvars))
        return outvars

    def emit(self, eqn: core.JaxprEqn) -> None:
        """Adds an equation as it is."""
        kind = kind_of(eqn)
        if kind is Kind.KERNEL and self._is_foreign(eqn):
            kind = Kind.FOREIGN
        self.equations.append(FlatEquation(eqn, kind))

    # ------------------------------------------------------------------ loops

    def _loop(self, eqn: core.JaxprEqn, operands: list[Atom]) -> list[Atom] | None:
        """Unrolls a loop that holds only what a program can do; ``None`` if it does not."""
        scan = Scan.of(eqn)
        if not scan.length or not holds_kernel(scan.body):
            return None
        carry = operands[scan.consts : scan.consts + scan.carries]
        known = tuple(map(is_scalar_literal, operands[: scan.consts] + carry))
        cost = cost_of_loop(scan, known, self._is_foreign)
        if cost is None:
            return None
        if cost.nodes * scan.length <= self._max_nodes:
            return self._unroll(eqn, scan, operands)
        return self._lengthen_steps(scan, operands, cost)

    def _unroll(self, eqn: core.JaxprEqn, scan: Scan, operands: Sequence[Atom]) -> list[Atom]:
        consts, carry, stacked = scan.split(operands)
        columns: list[list[Atom]] = [[] for _ in range(scan.stacks)]
        inputs = scan.body.jaxpr.invars[len(consts) + len(carry) :]
        order = range(scan.length)
        for i in reversed(order) if scan.reverse else order:
            rows = [self._row(eqn, x, i, var.aval) for x, var in zip(stacked, inputs, strict=True)]
            made = self.inline(scan.body, [*consts, *carry, *rows])
            carry = made[: len(carry)]
            for column, value in zip(columns, made[len(carry) :], strict=True):
                column.append(value)
        outs = eqn.outvars[len(carry) :]
        stacks = [
            self._stack(eqn, column[::-1] if scan.reverse else column, out.aval)
            for column, out in zip(columns, outs, strict=True)
        ]
        return [*carry, *stacks]

    def _row(self, eqn: core.JaxprEqn, stacked: Atom, i: int, aval: Any) -> Atom:
        """Element ``i`` of a stacked operand, as a view."""
        shape = stacked.aval.shape
        first = (i, *(0 for _ in shape[1:]))
        params = {
            "start_indices": first,
            "limit_indices": (i + 1, *shape[1:]),
            "strides": None,
        }
        row = self._new(eqn, "slice_p", params, [stacked], aval.update(shape=(1, *aval.shape)))
        return self._reshaped(eqn, row, aval)

    def _stack(self, eqn: core.JaxprEqn, column: Sequence[Atom], aval: Any) -> Atom:
        """Values one above the other; a dropped result costs nothing, since nobody reads it."""
        one = aval.update(shape=(1, *aval.shape[1:]))
        rows = [self._reshaped(eqn, value, one) for value in column]
        return self._new(eqn, "concatenate_p", {"dimension": 0}, rows, aval)

    def _reshaped(self, eqn: core.JaxprEqn, value: Atom, aval: Any) -> Atom:
        if is_scalar_literal(value):
            params = {"shape": aval.shape, "broadcast_dimensions": (), "sharding": None}
            return self._new(eqn, "broadcast_in_dim_p", params, [value], aval)
        params = {"new_sizes": aval.shape, "dimensions": None, "sharding": None}
        return self._new(eqn, "reshape_p", params, [value], aval)

    def _new(
        self, at: core.JaxprEqn, name: str, params: Any, operands: list[Atom], aval: Any
    ) -> core.Var:
        result = core.Var(aval)
        primitive = getattr(core.primitives, name)
        self.emit(
            core.new_jaxpr_eqn(
                operands, [result], primitive, params, core.no_effects, at.source_info
            )
        )
        return result

    def _lengthen_steps(
        self, scan: Scan, operands: Sequence[Atom], cost: LoopCost
    ) -> list[Atom] | None:
        """Makes several iterations one; ``None`` if they depend on the loop's counter."""
        per_step = self._max_nodes // cost.nodes
        if per_step < 2 or cost.reads_counter:
            return None
        avals = [[atom.aval for atom in group] for group in scan.split(operands)]
        return self.inline(in_larger_steps(scan, per_step, avals), operands)


@kept
def _is_neutral(jaxpr: core.Jaxpr) -> bool:
    """Whether a jaxpr only makes constants and views, so that inlining it splits nothing."""
    return all(kind_of(eqn) in (Kind.VIEW, Kind.FILL, Kind.CONCATENATE) for eqn in jaxpr.eqns)

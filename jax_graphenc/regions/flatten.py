"""A region as one list of equations: calls inlined, counted loops of kernels unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
from jax.extend import core

from jax_graphenc.regions.cost import Cost, cost_of_loop, is_neutral
from jax_graphenc.regions.equations import Kind, kind_of
from jax_graphenc.regions.inliner import Inliner
from jax_graphenc.regions.jaxprs import has_kernel, inner_call, known_branch
from jax_graphenc.regions.larger_steps import in_larger_steps
from jax_graphenc.regions.literals import Atom, is_scalar_literal
from jax_graphenc.regions.scalars import fold
from jax_graphenc.regions.scan import Scan
from jax_graphenc.regions.unroll import unroll
from jax_graphenc.regions.views import static_slice


@dataclass(frozen=True, slots=True)
class FlatEquation:
    """An equation in which no call is left, with what a program does with it.

    Attributes:
        eqn: the equation.
        kind: what a program does with it.
        cost: of a loop that holds kernels and is not unrolled: why.
    """

    eqn: core.JaxprEqn
    kind: Kind
    cost: Cost | None = None


class Flattener(Inliner):
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

    def equation(self, eqn: core.JaxprEqn, operands: list[Atom]) -> Sequence[Atom]:
        """Adds an equation, or those that it means; returns what its results are."""
        if (known := fold(eqn, operands)) is not None:
            return [known]
        if (inner := inner_call(eqn)) is not None and _inlines(inner, operands):
            return self.inline(inner, self._behind_barrier(eqn, operands))
        if (branch := known_branch(eqn, operands)) is not None:
            return self.inline(branch, operands[1:])
        cost = None
        if eqn.primitive.name == "scan" and has_kernel(Scan.of(eqn).body.jaxpr):
            scan = Scan.of(eqn)
            cost = cost_of_loop(scan, operands, self._is_foreign)
            if (results := self._loop(eqn, scan, operands, cost)) is not None:
                return results
        eqn = static_slice(eqn, operands) or eqn
        outvars = [v if isinstance(v, core.DropVar) else core.Var(v.aval) for v in eqn.outvars]
        self.emit(eqn.replace(invars=operands[: len(eqn.invars)], outvars=outvars), cost)
        return outvars

    def emit(self, eqn: core.JaxprEqn, cost: Cost | None = None) -> None:
        """Adds an equation as it is."""
        kind = kind_of(eqn)
        if kind is Kind.KERNEL and self._is_foreign(eqn):
            kind = Kind.FOREIGN
        self.equations.append(FlatEquation(eqn, kind, cost))

    def _behind_barrier(self, eqn: core.JaxprEqn, operands: list[Atom]) -> list[Atom]:
        """What ``jax.checkpoint`` computes again waits for its operands, as where JAX lowers it.

        Otherwise XLA would merge it with what was computed first, whose memory is to be free.
        """
        if not eqn.params.get("differentiated", False):
            return operands
        prevent_cse: bool | Sequence[bool] = eqn.params["prevent_cse"]
        if isinstance(prevent_cse, bool):
            prevent_cse = [prevent_cse] * len(operands)
        behind = [
            i
            for i, (prevented, atom) in enumerate(zip(prevent_cse, operands, strict=True))
            if prevented and not isinstance(atom, core.Literal)
        ]
        barrier = jax.make_jaxpr(lambda *xs: jax.lax.optimization_barrier(xs))
        given = [operands[i] for i in behind]
        made = self.inline(barrier(*(atom.aval for atom in given)), given) if given else []
        results = list(operands)
        for i, atom in zip(behind, made, strict=True):
            results[i] = atom
        return results

    def _loop(
        self, eqn: core.JaxprEqn, scan: Scan, operands: list[Atom], cost: Cost
    ) -> list[Atom] | None:
        """Unrolls a loop, whole or in part; ``None`` if it holds what no program can do."""
        if cost.foreign or not scan.length:
            return None
        if cost.nodes * scan.length <= self._max_nodes:
            return unroll(self, eqn, scan, operands)
        per_step = self._max_nodes // cost.nodes
        if per_step < 2 or cost.reads_counter:
            return None
        avals = [[atom.aval for atom in group] for group in scan.split(operands)]
        return self.inline(in_larger_steps(scan, per_step, avals), operands)


def _inlines(inner: core.ClosedJaxpr, operands: Sequence[Atom]) -> bool:
    """Whether a call is worth looking into: XLA's own functions stay whole."""
    known = tuple(map(is_scalar_literal, operands))
    return has_kernel(inner.jaxpr) or is_neutral(inner, known)

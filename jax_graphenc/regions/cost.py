"""What equations add to a program, found without unrolling their loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend import core

from jax_graphenc.base.kept import kept
from jax_graphenc.regions.equations import Kind, kind_of
from jax_graphenc.regions.inliner import Inliner
from jax_graphenc.regions.jaxprs import closed, inner_call, known_branch
from jax_graphenc.regions.literals import Atom, is_scalar_literal, scalar_literal
from jax_graphenc.regions.scalars import fold
from jax_graphenc.regions.scan import Scan
from jax_graphenc.regions.views import static_slice

IsForeign = Callable[[core.JaxprEqn], bool]


@dataclass(frozen=True, slots=True)
class Cost:
    """What an iteration of a loop adds to a program.

    Attributes:
        nodes: how many.
        known_carry: which carried values are numbers that are known when the loop is unrolled: its
            counter, and what is computed from that.
        reads_counter: whether an array depends on one of these.
        foreign: what no program can do.
    """

    nodes: int
    known_carry: tuple[bool, ...]
    reads_counter: bool
    foreign: tuple[core.JaxprEqn, ...]


def cost_of_loop(scan: Scan, operands: Sequence[Atom], is_foreign: IsForeign) -> Cost:
    """The cost of an iteration.

    Args:
        scan: the loop.
        operands: of the loop; numbers among the constants and the initial carry are known.
        is_foreign: whether a kernel is left to XLA.
    """
    consts, carry, _ = scan.split(operands)
    rows = scan.body.jaxpr.invars[len(consts) + len(carry) :]
    carry = [_changing(atom) for atom in carry]
    while True:
        walk = _Walk(is_foreign)
        made = walk.inline(scan.body, [*consts, *carry, *rows])
        after = [
            old if is_scalar_literal(new) else var
            for old, new, var in zip(
                carry, made, scan.body.jaxpr.invars[len(consts) :], strict=False
            )
        ]
        known = tuple(map(is_scalar_literal, after))
        if known == tuple(map(is_scalar_literal, carry)):
            return Cost(max(walk.nodes, 1), known, walk.reads_counter, tuple(walk.foreign))
        carry = after


@kept
def is_neutral(jaxpr: core.ClosedJaxpr, known: tuple[bool, ...]) -> bool:
    """Whether a jaxpr without kernels splits nothing when it is inlined.

    Args:
        jaxpr: of a call.
        known: which of its inputs are known numbers.
    """
    walk = _Walk(lambda eqn: True)
    walk.inline(jaxpr, _known_or_not(jaxpr.jaxpr.invars, known))
    return not walk.foreign


class _StandIn(core.Literal):  # type: ignore[misc]
    """Some number of a type, for one that differs from iteration to iteration."""

    @staticmethod
    def of(aval: Any) -> _StandIn:
        return _StandIn(scalar_literal(1, aval).val, aval)  # type: ignore[no-untyped-call]


def _changing(atom: Atom) -> Atom:
    return _StandIn.of(atom.aval) if is_scalar_literal(atom) else atom


class _Walk(Inliner):
    """Counts nodes. Atoms are the variables themselves, numbers, and stand-ins for numbers."""

    def __init__(self, is_foreign: IsForeign) -> None:
        self.nodes = 0
        self.reads_counter = False
        self.foreign: list[core.JaxprEqn] = []
        self._is_foreign = is_foreign

    def equation(self, eqn: core.JaxprEqn, operands: list[Atom]) -> Sequence[Atom]:
        varies = any(isinstance(atom, _StandIn) for atom in operands)
        if (known := fold(eqn, operands)) is not None:
            return [_changing(known) if varies else known]
        if (inner := inner_call(eqn)) is not None:
            return self.inline(inner, operands)
        if (branch := known_branch(eqn, operands)) is not None and not varies:
            return self.inline(branch, operands[1:])
        self.reads_counter = self.reads_counter or varies
        if branch is not None:
            return self._branches(eqn, operands)
        if eqn.primitive.name == "scan":
            return self._loop(eqn, operands)
        eqn = static_slice(eqn, operands) or eqn.replace(invars=operands)
        kind = kind_of(eqn)
        if kind is Kind.FOREIGN or (kind is Kind.KERNEL and self._is_foreign(eqn)):
            self.foreign.append(eqn)
        elif kind is Kind.KERNEL:
            self.nodes += math.prod(size for size, _ in eqn.params["call"].batch)
        elif kind not in (Kind.VIEW, Kind.BARRIER):
            self.nodes += 1
        return eqn.outvars

    def _loop(self, eqn: core.JaxprEqn, operands: list[Atom]) -> Sequence[Atom]:
        scan = Scan.of(eqn)
        cost = cost_of_loop(scan, operands, self._is_foreign)
        self.nodes += cost.nodes * scan.length
        self.reads_counter = self.reads_counter or cost.reads_counter
        self.foreign += cost.foreign
        return _known_or_not(eqn.outvars, [*cost.known_carry, *[False] * scan.stacks])

    def _branches(self, eqn: core.JaxprEqn, operands: list[Atom]) -> Sequence[Atom]:
        """Of branches that the counter chooses, the most expensive one."""
        most = 0
        known = [True] * len(eqn.outvars)
        for branch in eqn.params["branches"]:
            walk = _Walk(self._is_foreign)
            made = walk.inline(closed(branch), operands[1:])
            most = max(most, walk.nodes)
            self.foreign += walk.foreign
            known = [k and is_scalar_literal(atom) for k, atom in zip(known, made, strict=True)]
        self.nodes += most
        return _known_or_not(eqn.outvars, known)


def _known_or_not(variables: Sequence[Any], known: Sequence[bool]) -> list[Atom]:
    return [_StandIn.of(v.aval) if k else v for v, k in zip(variables, known, strict=True)]

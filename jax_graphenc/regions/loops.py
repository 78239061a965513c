"""Counted loops: what an iteration adds to a program, and longer loops as loops of larger steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
from jax.extend import core

from jax_graphenc.base.jax_compat import scan_arity
from jax_graphenc.regions.equations import (
    Atom,
    Kind,
    fold,
    is_scalar_literal,
    kind_of,
    scalar_literal,
    static_slice,
)
from jax_graphenc.regions.jaxprs import closed, inner_call

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Scan:
    """What ``lax.scan`` was asked for."""

    body: core.ClosedJaxpr
    length: int
    reverse: bool
    consts: int
    carries: int
    stacks: int

    @staticmethod
    def of(eqn: core.JaxprEqn) -> Scan:
        """Reads a scan equation."""
        consts, carries = scan_arity(eqn)
        body = closed(eqn.params["jaxpr"])
        stacks = len(eqn.outvars) - carries
        return Scan(body, eqn.params["length"], eqn.params["reverse"], consts, carries, stacks)

    def split(self, operands: Sequence[_T]) -> tuple[list[_T], list[_T], list[_T]]:
        """Constants, carry and stacked operands."""
        first, second = self.consts, self.consts + self.carries
        return list(operands[:first]), list(operands[first:second]), list(operands[second:])


@dataclass(frozen=True, slots=True)
class LoopCost:
    """What an iteration adds to a program.

    Attributes:
        nodes: how many.
        known_carry: which carried values are known when the loop is unrolled: its counter, and
            what is computed from that.
        reads_counter: whether an array depends on one of these.
    """

    nodes: int
    known_carry: tuple[bool, ...]
    reads_counter: bool


def cost_of_loop(
    scan: Scan, known: tuple[bool, ...], is_foreign: Callable[[core.JaxprEqn], bool]
) -> LoopCost | None:
    """The cost of an iteration; ``None`` if the body holds what no program can do."""
    carry = known[scan.consts :]
    while True:
        flags = (*known[: scan.consts], *carry, *[False] * _stacked(scan))
        counter = _Counter(is_foreign)
        out = counter.walk(scan.body, flags)
        if out is None:
            return None
        still = tuple(a and b for a, b in zip(carry, out, strict=False))
        if still == carry:
            return LoopCost(max(counter.nodes, 1), carry, counter.reads_known)
        carry = still


def _stacked(scan: Scan) -> int:
    return len(scan.body.jaxpr.invars) - scan.consts - scan.carries


class _Counter:
    """Walks a body without unrolling it: which scalars are known, how many nodes there are."""

    def __init__(self, is_foreign: Callable[[core.JaxprEqn], bool]) -> None:
        self.nodes = 0
        self.reads_known = False
        self._is_foreign = is_foreign

    def walk(self, jaxpr: core.ClosedJaxpr, known: Sequence[bool]) -> list[bool] | None:
        """Which outputs are known; ``None`` if an equation is foreign."""
        flags: dict[Any, bool] = dict(zip(jaxpr.jaxpr.invars, known, strict=True))

        def is_known(atom: Atom) -> bool:
            return is_scalar_literal(atom) or (
                not isinstance(atom, core.Literal) and flags.get(atom, False)
            )

        def stands_in(atom: Atom) -> Atom:
            """Some number, where the real one is known when the loop is unrolled."""
            if isinstance(atom, core.Literal) or not is_known(atom):
                return atom
            return scalar_literal(1, atom.aval)

        for eqn in jaxpr.jaxpr.eqns:
            operands = [stands_in(atom) for atom in eqn.invars]
            if fold(eqn, operands) is not None:
                flags[eqn.outvars[0]] = True
                continue
            inner = inner_call(eqn)
            if inner is not None:
                out = self.walk(inner, [is_known(atom) for atom in eqn.invars])
                if out is None:
                    return None
                flags.update(zip(eqn.outvars, out, strict=True))
                continue
            if any(is_known(atom) and not isinstance(atom, core.Literal) for atom in eqn.invars):
                self.reads_known = True
            if eqn.primitive.name == "scan":
                scan = Scan.of(eqn)
                cost = cost_of_loop(
                    scan,
                    tuple(map(is_known, eqn.invars[: scan.consts + scan.carries])),
                    self._is_foreign,
                )
                if cost is None:
                    return None
                self.nodes += cost.nodes * scan.length
                self.reads_known = self.reads_known or cost.reads_counter
                flags.update(zip(eqn.outvars, cost.known_carry, strict=False))
                continue
            eqn = static_slice(eqn, operands) or eqn.replace(invars=operands)
            kind = kind_of(eqn)
            if kind is Kind.FOREIGN or (kind is Kind.KERNEL and self._is_foreign(eqn)):
                return None
            if kind is Kind.KERNEL:
                self.nodes += math.prod(size for size, _ in eqn.params["call"].batch)
            elif kind is not Kind.VIEW:
                self.nodes += 1
        return [is_known(atom) for atom in jaxpr.jaxpr.outvars]


def in_larger_steps(scan: Scan, per_step: int, avals: Any) -> core.ClosedJaxpr:
    """A loop of fewer iterations, each of which is several of the old ones.

    Args:
        scan: the loop.
        per_step: iterations that become one.
        avals: of the constants, the carry and the stacked operands, one list each.

    Returns:
        A function of these to the carry and the stacked results.
    """
    steps, rest = divmod(scan.length, per_step)
    body = core.jaxpr_as_fun(scan.body)

    def several(consts: Any, carried: Any, rows: Any, count: int) -> tuple[list[Any], list[Any]]:
        columns: list[list[Any]] = [[] for _ in range(scan.stacks)]
        order = range(count)
        for k in reversed(order) if scan.reverse else order:
            made = body(*consts, *carried, *(x[k] for x in rows))
            carried = made[: scan.carries]
            for column, value in zip(columns, made[scan.carries :], strict=True):
                column.append(value)
        if scan.reverse:
            columns = [column[::-1] for column in columns]
        return carried, [jax.numpy.stack(column) for column in columns]

    def loop(consts: Any, carried: Any, stacked: Any) -> Any:
        whole_steps = steps * per_step
        last = [x[whole_steps:] for x in stacked]
        tail: list[Any] = []
        if rest and scan.reverse:  # the last rows come first
            carried, tail = several(consts, carried, last, rest)
        carried, columns = jax.lax.scan(
            lambda c, rows: several(consts, c, rows, per_step),
            carried,
            [x[:whole_steps].reshape(steps, per_step, *x.shape[1:]) for x in stacked],
            length=steps,
            reverse=scan.reverse,
        )
        columns = [x.reshape(whole_steps, *x.shape[2:]) for x in columns]
        if rest and not scan.reverse:
            carried, tail = several(consts, carried, last, rest)
        if rest:
            columns = [jax.numpy.concatenate(pair) for pair in zip(columns, tail, strict=True)]
        return carried, columns

    return jax.make_jaxpr(loop)(*avals)

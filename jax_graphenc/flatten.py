"""A region as one list of equations: calls inlined, counted loops of kernels unrolled."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
from jax.extend import core

from jax_graphenc.equations import (
    CALLS,
    Atom,
    Kind,
    fold,
    is_scalar_literal,
    kind_of,
    scalar_literal,
    static_slice,
)
from jax_graphenc.jax_compat import scan_arity

T = TypeVar("T")


def closed(jaxpr: Any) -> core.ClosedJaxpr:
    """A jaxpr with its constants, which an open one has none of."""
    return jaxpr if hasattr(jaxpr, "consts") else core.ClosedJaxpr(jaxpr, ())


_kept: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def keep(jaxpr: Any, key: Any, make: Callable[[], T]) -> T:
    """What was made for a jaxpr before, or makes it; forgotten with the jaxpr."""
    made: dict[Any, Any] = _kept.setdefault(jaxpr, {})
    if key not in made:
        made[key] = make()
    found: T = made[key]
    return found


def holds_kernel(param: Any) -> bool:
    """Whether an equation's parameter is or has a jaxpr with a kernel, however deep."""
    if isinstance(param, tuple | list):
        return any(map(holds_kernel, param))
    if not isinstance(param, core.Jaxpr | core.ClosedJaxpr):
        return False
    jaxpr = closed(param).jaxpr

    def look() -> bool:
        return any(
            eqn.primitive.name == "cuda_kernel" or any(map(holds_kernel, eqn.params.values()))
            for eqn in jaxpr.eqns
        )

    return keep(jaxpr, "holds_kernel", look)


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
        if inner is not None and (holds_kernel(inner) or _is_neutral(inner)):
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
        cost = _cost_of_scan(scan, known, self._is_foreign)
        if cost is None:
            return None
        if cost.nodes * scan.length <= self._max_nodes:
            return self._unroll(eqn, scan, operands)
        return self._chunks(eqn, scan, operands, cost)

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

    def _chunks(
        self, eqn: core.JaxprEqn, scan: Scan, operands: Sequence[Atom], cost: _Cost
    ) -> list[Atom] | None:
        """Makes a long loop one of fewer iterations, each of which is several of the old ones."""
        per_chunk = self._max_nodes // cost.nodes
        counters = [i for i, known in enumerate(cost.known_carry) if known]
        in_use = any(not isinstance(eqn.outvars[i], core.DropVar) for i in counters)
        if per_chunk < 2 or cost.reads_counter or in_use:
            return None
        chunks, rest = divmod(scan.length, per_chunk)
        kept = [i for i in range(scan.carries) if i not in counters]
        consts, carry, stacked = scan.split(operands)

        def several(
            consts: Sequence[Any], carry: Sequence[Any], rows: Sequence[Any], count: int
        ) -> tuple[list[Any], list[Any]]:
            """``count`` iterations; loop counters are not carried, since nobody reads them."""
            whole: list[Any] = [x.val if is_scalar_literal(x) else None for x in old_carry]
            for i, value in zip(kept, carry, strict=True):
                whole[i] = value
            columns: list[list[Any]] = [[] for _ in range(scan.stacks)]
            order = range(count)
            for k in reversed(order) if scan.reverse else order:
                made = core.jaxpr_as_fun(scan.body)(*consts, *whole, *(x[k] for x in rows))
                whole = [
                    old if i in counters else new
                    for i, (old, new) in enumerate(zip(whole, made[: scan.carries], strict=True))
                ]
                for column, value in zip(columns, made[scan.carries :], strict=True):
                    column.append(value)
            if scan.reverse:
                columns = [column[::-1] for column in columns]
            return [whole[i] for i in kept], [jax.numpy.stack(column) for column in columns]

        old_carry = carry

        def loop(consts: Any, carry: Any, stacked: Any) -> Any:
            head = [x[: chunks * per_chunk] for x in stacked]
            tail = [x[chunks * per_chunk :] for x in stacked]
            if scan.reverse and rest:
                # The last rows come first.
                carry, last = several(consts, carry, tail, rest)
            rows = [x.reshape(chunks, per_chunk, *x.shape[1:]) for x in head]
            carry, columns = jax.lax.scan(
                lambda c, r: several(consts, c, r, per_chunk),
                carry,
                rows,
                length=chunks,
                reverse=scan.reverse,
            )
            columns = [x.reshape(chunks * per_chunk, *x.shape[2:]) for x in columns]
            if not scan.reverse and rest:
                carry, last = several(consts, carry, tail, rest)
            if rest:
                columns = [jax.numpy.concatenate(pair) for pair in zip(columns, last, strict=True)]
            return carry, columns

        shaped = jax.tree.map(lambda atom: atom.aval, (consts, [carry[i] for i in kept], stacked))
        traced = jax.make_jaxpr(loop)(*shaped)
        arguments = [*consts, *(carry[i] for i in kept), *stacked]
        made = self.inline(traced, arguments)
        results: list[Atom] = list(carry)
        for i, value in zip(kept, made, strict=False):
            results[i] = value
        return results + made[len(kept) :]


def inner_call(eqn: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """The jaxpr of a call that means no more than the equations inside."""
    param = CALLS.get(eqn.primitive.name)
    return closed(eqn.params[param]) if param in eqn.params else None


def _is_neutral(jaxpr: core.ClosedJaxpr) -> bool:
    """Whether a jaxpr only makes constants and views, so that inlining it splits nothing."""
    neutral = {Kind.VIEW, Kind.FILL, Kind.CONCATENATE}
    return keep(
        jaxpr.jaxpr,
        "is_neutral",
        lambda: all(kind_of(eqn) in neutral for eqn in jaxpr.jaxpr.eqns),
    )


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

    def split(self, operands: Sequence[T]) -> tuple[list[T], list[T], list[T]]:
        """Constants, carry and stacked operands."""
        first, second = self.consts, self.consts + self.carries
        return list(operands[:first]), list(operands[first:second]), list(operands[second:])


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a loop's body would add to a program, for each iteration."""

    nodes: int
    known_carry: tuple[bool, ...]  # loop counters and what is computed from them
    reads_counter: bool  # whether memory depends on one


def _cost_of_scan(
    scan: Scan, known: tuple[bool, ...], is_foreign: Callable[[core.JaxprEqn], bool]
) -> _Cost | None:
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
            return _Cost(max(counter.nodes, 1), carry, counter.reads_known)
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
            return scalar_literal(0, atom.aval) if is_known(atom) else atom

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
                cost = _cost_of_scan(
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

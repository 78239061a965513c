"""A region as stages: what runs as programs, and what XLA does before, between and after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from jax.extend import core

from jax_graphenc.base.shapes import byte_count
from jax_graphenc.regions.equations import Kind
from jax_graphenc.regions.flatten import FlatEquation, Flattener
from jax_graphenc.regions.literals import Atom, is_scalar_literal, key_of

# A program of more nodes is cut, since the order of its nodes takes memory that grows with their
# square.
_MAX_NODES = 16384

_LAZY = {Kind.VIEW, Kind.FILL}


@dataclass(slots=True)
class Stage:
    """Equations that run together.

    Attributes:
        equations: in an order in which they may run; for a program, with the views and constants
            that its kernels read.
        is_program: whether they are one program; otherwise XLA's.
        operands: of a program: what it takes from outside.
        results: of a program: what others take from it.
    """

    equations: list[FlatEquation]
    is_program: bool
    operands: Sequence[Atom] = ()
    results: Sequence[core.Var] = ()


@dataclass(slots=True)
class Partition:
    """A region, cut into stages that run one after the other.

    Attributes:
        invars, outvars: of the region.
        stages: programs and what is XLA's.
        equations: all that are needed, in the region's order.
    """

    invars: list[core.Var]
    outvars: list[Atom]
    stages: list[Stage]
    equations: list[FlatEquation]


def partition(
    jaxpr: core.ClosedJaxpr,
    max_unrolled_nodes: int,
    is_foreign: Callable[[core.JaxprEqn], bool] = lambda eqn: False,
) -> Partition:
    """Cuts a region into as few programs as its data flow allows.

    An equation's level is the number of changes between a program's and XLA's equations on the
    longest path to it: even levels are XLA's, odd ones are one program each. Views and constants
    have no level: each stage makes those that it reads. Sums and concatenations go with what they
    join. A barrier is XLA's where that splits no program; otherwise it has no level, and is a view
    to a program.

    Args:
        jaxpr: the region's.
        max_unrolled_nodes: bound on the nodes of a loop that is unrolled whole.
        is_foreign: whether a kernel is left to XLA all the same.
    """
    invars = [core.Var(v.aval) for v in jaxpr.jaxpr.invars]
    flat = Flattener(max_unrolled_nodes, is_foreign)
    outvars = flat.inline(jaxpr, invars)
    equations = _live(flat.equations, outvars)
    levels, lazy = _levels(equations)

    stages: list[Stage] = []
    for level in sorted(levels):
        if level % 2 == 0:
            stages.append(Stage(levels[level], False))
        else:
            stages += (Stage(part, True) for part in _portions(levels[level]))
    _connect(stages, lazy, outvars)
    return Partition(invars, outvars, stages, equations)


def _live(equations: Sequence[FlatEquation], outvars: Iterable[Atom]) -> list[FlatEquation]:
    wanted = {v for v in outvars if isinstance(v, core.Var)}
    live = []
    for e in reversed(equations):
        if e.eqn.effects or any(v in wanted for v in e.eqn.outvars):
            live.append(e)
            wanted.update(v for v in e.eqn.invars if isinstance(v, core.Var))
    return live[::-1]


def _levels(
    equations: Sequence[FlatEquation],
) -> tuple[dict[int, list[FlatEquation]], dict[core.Var, FlatEquation]]:
    """The equations of each level, and by their results those that have none."""
    level: dict[Atom, int] = {}
    last_effect = 0
    levels: dict[int, list[FlatEquation]] = {}
    lazy: dict[core.Var, FlatEquation] = {}
    for e in equations:
        eqn = e.eqn
        at = max((level.get(v, 0) for v in eqn.invars if isinstance(v, core.Var)), default=0)
        if e.kind in (Kind.FOREIGN, Kind.KERNEL):
            if eqn.effects:
                at = max(at, last_effect)
            at += at % 2 != (e.kind is Kind.KERNEL)
            if eqn.effects:
                last_effect = at
        for v in eqn.outvars:
            level[v] = at
        if e.kind in _LAZY or (e.kind is Kind.BARRIER and at % 2):
            lazy.update((v, e) for v in eqn.outvars)
        else:
            levels.setdefault(at, []).append(e)
    return levels, lazy


def _of_one_result(e: FlatEquation, result: core.Var) -> FlatEquation:
    """A barrier, as a program reads it: each result is an operand."""
    if e.kind is not Kind.BARRIER:
        return e
    operand = e.eqn.invars[e.eqn.outvars.index(result)]
    return replace(e, eqn=e.eqn.replace(invars=[operand], outvars=[result]))


def node_count(e: FlatEquation) -> int:
    """Nodes that an equation adds to its program, at most."""
    if e.kind is Kind.KERNEL:
        count: int = e.eqn.params["call"].node_count([byte_count(v.aval) for v in e.eqn.invars])
        return count
    return len(e.eqn.invars)


def _portions(equations: Sequence[FlatEquation]) -> list[list[FlatEquation]]:
    portions: list[list[FlatEquation]] = [[]]
    nodes = 0
    for e in equations:
        nodes += node_count(e)
        if portions[-1] and nodes > _MAX_NODES:
            portions.append([])
            nodes = node_count(e)
        portions[-1].append(e)
    return portions


def _connect(stages: list[Stage], lazy: dict[core.Var, FlatEquation], outvars: list[Atom]) -> None:
    """Adds to each stage the views and constants that it reads; finds what programs exchange."""
    made_by: dict[core.Var, Stage] = {}
    for stage in stages:
        for e in stage.equations:
            made_by.update((v, stage) for v in e.eqn.outvars)
    asked: dict[int, dict[core.Var, None]] = {id(stage): {} for stage in stages}

    def ask(v: Atom, by: Stage | None) -> None:
        maker = made_by.get(v) if isinstance(v, core.Var) else None
        if maker is not None and maker is not by:
            asked[id(maker)][v] = None

    # What XLA makes once serves all of its stages; a program makes its own.
    outside: set[core.Var] = set()

    def pull(v: Atom, into: list[FlatEquation], have: set[core.Var], by: Stage | None) -> None:
        if not isinstance(v, core.Var) or v in have:
            return
        if v not in lazy:
            ask(v, by)
            return
        e = lazy[v] if by is None else _of_one_result(lazy[v], v)
        for operand in e.eqn.invars:
            pull(operand, into, have, by)
        have.update(e.eqn.outvars)
        into.append(e)

    for stage in stages:
        whole: list[FlatEquation] = []
        have: set[core.Var] = set() if stage.is_program else outside
        for e in stage.equations:
            for v in e.eqn.invars:
                pull(v, whole, have, stage if stage.is_program else None)
            whole.append(e)
        stage.equations = whole
    last: list[FlatEquation] = []
    for v in outvars:
        pull(v, last, outside, None)
    if last:
        stages.append(Stage(last, False))
    for stage in stages:
        if not stage.is_program:
            continue
        inside = {v for e in stage.equations for v in e.eqn.outvars}
        taken = {
            key_of(v): v
            for e in stage.equations
            for v in e.eqn.invars
            if not is_scalar_literal(v) and (isinstance(v, core.Literal) or v not in inside)
        }
        stage.operands = list(taken.values())
        stage.results = list(asked[id(stage)])

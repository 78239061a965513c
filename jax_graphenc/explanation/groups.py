"""Runs of similar nodes, and of similar graphs, so that a long program is shown in few lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jax_graphenc.explanation.data import Node, Program

_T = TypeVar("_T")

# The longest pattern that is looked for: the nodes of one step of a loop.
_MAX_PERIOD = 16
# A pattern that comes less often is shown as it is.
_MIN_COUNT = 3


@dataclass(frozen=True, slots=True)
class Run:
    """A pattern that repeats: ``count`` times ``period`` items from position ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """The position behind it."""
        return self.start + self.period * self.count


def runs(
    items: Sequence[_T],
    similar: Callable[[_T, _T], bool],
    *,
    full: bool,
    leads: Callable[[_T], bool] = lambda item: True,
) -> list[Run]:
    """Cuts a sequence into runs, from left to right, each the longest that begins there.

    Args:
        items: the sequence.
        similar: whether two of them may be shown as one.
        full: takes every item for itself.
        leads: whether a pattern may begin with an item, where there is a choice: the first node of
            a loop's step is seldom the first that repeats.
    """
    found: list[Run] = []
    at = 0
    while at < len(items):
        best = Run(at, 1, 1)
        for period in range(1, 1 if full else min(_MAX_PERIOD, len(items) - at) + 1):
            # One that ends no later than the best is not looked at further.
            if best.stop == len(items):
                break
            if best.stop >= at + period and not similar(
                items[best.stop - period], items[best.stop]
            ):
                continue
            end = at + period
            while end < len(items) and similar(items[end - period], items[end]):
                end += 1
            skip = next((k for k in range(period) if leads(items[at + k])), 0)
            run = Run(at + skip, period, (end - at - skip) // period)
            if run.count >= _MIN_COUNT and run.stop > best.stop:
                best = run
        found += (Run(k, 1, 1) for k in range(at, best.start))
        found.append(best)
        at = best.stop
    return found


@dataclass(frozen=True, slots=True)
class Graph:
    """One of the encoder's graphs, or all nodes if they are launched one by one.

    Attributes:
        number: its place, from 0 on.
        nodes: the numbers of its nodes.
        runs: of these, by position.
    """

    number: int
    nodes: tuple[int, ...]
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A program in the order in which it is shown.

    Attributes:
        graphs: all of them; or one of all nodes, where repetitions that the cuts hide say more.
        runs: of similar graphs.
        shown: for each node, the one that is shown for it.
    """

    graphs: tuple[Graph, ...]
    runs: tuple[Run, ...]
    shown: tuple[int, ...]


# Without its cuts, a program is shown if that takes so many times fewer nodes.
_CUTS_COST = 2


def layout(program: Program, *, full: bool) -> Layout:
    """Finds what repeats.

    Args:
        program: what is to be shown.
        full: leaves nothing out.
    """
    groups = program.graphs or (tuple(range(len(program.nodes))),)
    cut = _layout(program, groups, full=full)
    if full or len(groups) == 1:
        return cut
    whole = _layout(program, (tuple(i for group in groups for i in group),), full=False)
    costly = len(set(cut.shown)) > _CUTS_COST * len(set(whole.shown))
    return whole if costly else cut


def _layout(program: Program, groups: tuple[tuple[int, ...], ...], *, full: bool) -> Layout:
    order = [i for group in groups for i in group]
    position = {i: k for k, i in enumerate(order)}
    same = _Same(program, position)
    graphs = tuple(
        Graph(number, nodes, tuple(runs(nodes, same.nodes, full=full, leads=same.leads)))
        for number, nodes in enumerate(groups)
    )
    graph_runs = tuple(runs(graphs, same.graphs, full=full))
    shown = list(range(len(program.nodes)))
    for over in graph_runs:
        for graph in graphs[over.start : over.stop]:
            pattern = graphs[over.start + (graph.number - over.start) % over.period]
            for run in pattern.runs:
                for k in range(run.start, run.stop):
                    shown[graph.nodes[k]] = pattern.nodes[run.start + (k - run.start) % run.period]
    return Layout(graphs, graph_runs, tuple(shown))


class _Same:
    """Whether nodes differ in nothing but where their memory is.

    They wait for the same nodes, or for ones that stand as far before them.
    """

    def __init__(self, program: Program, position: dict[int, int]) -> None:
        self._nodes = program.nodes
        self._position = position
        self._looks = [_looks(node) for node in program.nodes]

    def nodes(self, a: int, b: int) -> bool:
        mine, others = self._nodes[a].after, self._nodes[b].after
        apart = self._position[b] - self._position[a]
        return self._looks[a] == self._looks[b] and all(
            x.on == y.on or self._position[y.on] - self._position[x.on] == apart
            for x, y in zip(mine, others, strict=True)
        )

    def leads(self, a: int) -> bool:
        return self._nodes[a].label == self._nodes[0].label

    def graphs(self, a: Graph, b: Graph) -> bool:
        return len(a.nodes) == len(b.nodes) and all(map(self.nodes, a.nodes, b.nodes))


def _looks(node: Node) -> object:
    uses = [
        # Not which of several arguments: a loop reads xs[i], a batch its element.
        (u.parameter, u.memory.name.rstrip("0123456789"), u.end - u.begin, u.reads, u.writes)
        for u in node.uses
    ]
    edges = [
        [(hazard.kind, hazard.use.parameter) for hazard in edge.hazards] for edge in node.after
    ]
    return node.label, node.launch, node.shared_bytes, node.cooperative, uses, edges

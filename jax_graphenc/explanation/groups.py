"""Runs of similar nodes and graphs, which shorten the views of a long program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from jax_graphenc.explanation.data import Node, Program

_T = TypeVar("_T")

# The longest pattern, such as the nodes of a loop's step.
_MAX_PERIOD = 16
# Fewer repetitions are shown in full.
_MIN_COUNT = 3


@dataclass(frozen=True, slots=True)
class Run:
    """A pattern that repeats: ``count`` times ``period`` items from position ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """The position after it."""
        return self.start + self.period * self.count


def runs(
    items: Sequence[_T],
    similar: Callable[[_T, _T], bool],
    *,
    full: bool,
    leads: Callable[[_T], bool] = lambda item: True,
) -> list[Run]:
    """Cuts a sequence into runs from left to right, each the longest at its position.

    Args:
        items: the sequence.
        similar: whether two items may be shown as one.
        full: makes every item a run.
        leads: whether a pattern preferably begins with an item: the first item that repeats is
            seldom the first of a loop's step.
    """
    found: list[Run] = []
    at = 0
    while at < len(items):
        best = Run(at, 1, 1)
        for period in range(1, 1 if full else min(_MAX_PERIOD, len(items) - at) + 1):
            # Skip a period whose run cannot end later than the best one.
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


def repeated(programs: Sequence[Program], *, full: bool) -> Iterator[tuple[int, int, Program]]:
    """Groups equal consecutive programs: the numbers of the first and the last, and the program."""
    first = 0
    for i in range(1, len(programs) + 1):
        if i < len(programs) and not full and programs[i] == programs[first]:
            continue
        yield first, i - 1, programs[first]
        first = i


@dataclass(frozen=True, slots=True)
class Graph:
    """One of the encoder's graphs, or all nodes if they are launched one by one.

    Attributes:
        number: its position in the program.
        nodes: the numbers of its nodes.
        runs: runs of positions in ``nodes``.
    """

    number: int
    nodes: tuple[int, ...]
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """A program in display order.

    Attributes:
        graphs: its graphs, or one of all nodes if the cuts hide too many repetitions.
        runs: runs of similar graphs.
        shown: for each node, the node that stands for it.
    """

    graphs: tuple[Graph, ...]
    runs: tuple[Run, ...]
    shown: tuple[int, ...]


# The cuts are left out if they show more than so many times the nodes.
_CUTS_COST = 2


def layout(program: Program, *, full: bool) -> Layout:
    """Finds a program's repetitions.

    Args:
        program: the program.
        full: shows every node.
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
    """Compares nodes: similar ones differ only in the place of their memory.

    They wait for the same nodes, or for nodes at the same distance before them.
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
        # Without the argument's number: a loop's steps read different ones.
        (u.parameter, u.memory.name.rstrip("0123456789"), u.end - u.begin, u.reads, u.writes)
        for u in node.uses
    ]
    edges = [
        [(hazard.kind, hazard.use.parameter) for hazard in edge.hazards] for edge in node.after
    ]
    return node.label, node.launch, node.shared_bytes, node.cooperative, uses, edges

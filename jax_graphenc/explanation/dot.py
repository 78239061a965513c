"""A report as a Graphviz drawing."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from jax_graphenc.explanation import labels, words
from jax_graphenc.explanation.data import Node, Program, Report
from jax_graphenc.explanation.groups import Graph, Layout, Run, layout, repeated

if TYPE_CHECKING:
    import graphviz


FORMATS = ("svg", "pdf", "png")
"""Picture formats, as suffixes of files."""

_FONT = "Helvetica"
_ROW = 8  # unordered nodes side by side


def digraph(report: Report, *, full: bool) -> graphviz.Digraph:
    """Draws programs as clusters, their graphs as clusters inside, and nodes with their edges."""
    drawing = _canvas(report)
    fills = _fills(report)
    shown = [
        _Shown(first, last, program, layout(program, full=full))
        for first, last, program in repeated(report.programs, full=full)
    ]
    for each in shown:
        _Drawing(drawing, report, each, fills).draw()
    for before, after in itertools.pairwise(shown):
        _join(drawing, before, after)
    return drawing


def _canvas(report: Report) -> graphviz.Digraph:
    import graphviz  # only drawing needs it

    return graphviz.Digraph(
        graphviz.escape(report.function),  # <lambda> would be HTML
        graph_attr={
            "fontname": _FONT,
            "fontcolor": labels.INK,
            "labelloc": "b",
            "compound": "true",
            "newrank": "true",
            "nodesep": "0.35",
            "ranksep": "0.55",
            "label": labels.legend(report),
        },
        node_attr={"fontname": _FONT, "fontcolor": labels.INK, "fontsize": "11", "shape": "plain"},
        edge_attr={"fontname": _FONT, "fontsize": "10", "color": labels.INK, "arrowsize": "0.7"},
    )


def boxes(report: Report) -> int:
    """The number of nodes in the drawing."""
    return sum(
        len(set(layout(program, full=False).shown))
        for *_, program in repeated(report.programs, full=False)
    )


def render(drawing: graphviz.Digraph, format: str) -> bytes:
    """A picture of a drawing.

    Raises:
        FileNotFoundError: if Graphviz's program ``dot`` is not installed.
    """
    import graphviz

    try:
        picture: bytes = drawing.pipe(format=format)
    except graphviz.ExecutableNotFound:
        raise FileNotFoundError(
            "explain: a picture needs Graphviz's program 'dot', which is not on the PATH: install "
            "it ('apt install graphviz', 'brew install graphviz', 'conda install graphviz'), or "
            "take .dot(), which any viewer of Graphviz files shows"
        ) from None
    return picture


def _fills(report: Report) -> dict[str, str]:
    kernels = {
        node.label: None
        for program in report.programs
        for node in program.nodes
        if node.launch is not None
    }
    return {name: labels.FILLS[i % len(labels.FILLS)] for i, name in enumerate(kernels)}


@dataclass(frozen=True, slots=True)
class _Shown:
    """A program of the drawing, which stands for equal ones up to number ``last``."""

    number: int
    last: int
    program: Program
    plan: Layout


class _Drawing:
    """Draws one program."""

    def __init__(
        self, drawing: graphviz.Digraph, report: Report, shown: _Shown, fills: dict[str, str]
    ) -> None:
        self._drawing = drawing
        self._report = report
        self._shown = shown
        self._number, self._program, self._plan = shown.number, shown.program, shown.plan
        self._fills = fills
        self._graph_of = {i: graph.number for graph in shown.plan.graphs for i in graph.nodes}
        self._position = {i: k for k, i in enumerate(i for g in shown.plan.graphs for i in g.nodes)}

    def draw(self) -> None:
        cluster = _cluster(self._number)
        with self._drawing.subgraph(name=cluster) as inside:
            inside.attr(
                label=self._title(), labelloc="t", labeljust="l", style="rounded,filled",
                color=labels.GREY, fillcolor="#f6f8fa", margin="14", fontsize="13",
            )  # fmt: skip
            for over in self._plan.runs:
                self._graphs(inside, over)
        self._edges()

    def _title(self) -> str:
        number, program = self._number, self._program
        title = words.title(number, program)
        if self._shown.last > number:
            title += f", and {self._shown.last - number} more like it"
        more = [*words.places(program), f"run by {words.run_by(self._report, program)}"]
        if len(program.graphs) > 1:
            more.append(f"cut {words.cuts(program)}")
        more += words.buffers(program.arguments)
        more += words.buffers(program.results)
        if program.scratch is not None:
            more.append(f"scratch {words.scratch(self._report, program)}")
        return labels.title(title, more)

    def _graphs(self, parent: Any, over: Run) -> None:
        if over.count > 1:
            with parent.subgraph(name=self._cluster("graphs", over.start)) as repeated:
                what = f"{words.repetition(over)}, graphs {over.start + 1} to {over.stop}"
                repeated.attr(label=labels.title(what), fillcolor=labels.REPEATED)
                self._pattern_of_graphs(repeated, over)
        else:
            self._pattern_of_graphs(parent, over)

    def _pattern_of_graphs(self, parent: Any, over: Run) -> None:
        for graph in self._plan.graphs[over.start : over.start + over.period]:
            if len(self._plan.graphs) == 1:
                self._graph(parent, graph)
                continue
            with parent.subgraph(name=self._cluster("graph", graph.number)) as inside:
                what = f"graph {graph.number + 1}, {words.counted(len(graph.nodes), 'node')}"
                inside.attr(
                    label=labels.title(what), style="rounded,filled,dashed", fillcolor="white"
                )
                self._graph(inside, graph)

    def _graph(self, parent: Any, graph: Graph) -> None:
        for run in graph.runs:
            pattern = graph.nodes[run.start : run.start + run.period]
            if run.count > 1 and run.period > 1:
                with parent.subgraph(name=self._cluster("run", pattern[0])) as inside:
                    # Short, because edges cross it.
                    inside.attr(
                        label=labels.title(words.repetition(run)), fillcolor=labels.REPEATED
                    )
                    for i in pattern:
                        self._node(inside, self._program.nodes[i], f"#{i}")
            else:
                for i in pattern:
                    numbers = words.numbers(graph.nodes, run)
                    many = f"x {run.count}, {numbers}" if run.count > 1 else f"#{i}"
                    self._node(parent, self._program.nodes[i], many)
        self._rows(parent, graph)

    def _rows(self, parent: Any, graph: Graph) -> None:
        """Puts unordered nodes into short rows; one long row would be unreadable."""
        waits = {edge.on for node in self._program.nodes for edge in node.after}
        shown = dict.fromkeys(self._plan.shown[i] for i in graph.nodes)
        free = [i for i in shown if not self._program.nodes[i].after and i not in waits]
        for above, below in zip(free, free[_ROW:], strict=False):
            parent.edge(self._id(above), self._id(below), style="invis")
        for first in range(0, len(free), _ROW):
            with parent.subgraph() as row:
                row.attr(rank="same")
                for left, right in itertools.pairwise(free[first : first + _ROW]):
                    row.edge(self._id(left), self._id(right), style="invis")

    def _node(self, parent: Any, node: Node, numbers: str) -> None:
        fill = self._fills.get(node.label, labels.FILL_OF_MEMORY)
        rows = [f"<B>{escape(node.label)}</B> <FONT COLOR='{labels.FADED}'>{numbers}</FONT>"]
        if launch := words.launch(node).strip():
            rows.append(escape(launch))
        rows += (labels.arrows(escape(words.use(use))) for use in node.uses)
        parent.node(
            self._id(node.index), label=labels.box(rows, fill, labels.GREY), tooltip=node.label
        )

    def _edges(self) -> None:
        for (on, to, label), color in self._distinct_edges().items():
            # An edge into the next repetition goes up; dot makes room for edges that go down.
            again = self._position[on] >= self._position[to]
            ends, direction = ((to, on), "back") if again else ((on, to), "forward")
            self._drawing.edge(
                *map(self._id, ends), label=label, dir=direction, color=color, fontcolor=color
            )
        self._order_of_graphs()

    def _distinct_edges(self) -> dict[tuple[int, int, str], str]:
        """Colors of the edges between shown nodes, by their ends and label."""
        shown = self._plan.shown
        colors: dict[tuple[int, int, str], str] = {}
        for node in self._program.nodes:
            for edge in node.after:
                # Graphs run one after the other on one stream: no edge joins two of them.
                if self._graph_of[edge.on] == self._graph_of[node.index]:
                    label, color = labels.edge(edge)
                    colors[shown[edge.on], shown[node.index], label] = color
        return colors

    def _order_of_graphs(self) -> None:
        plan = self._plan
        graphs = [
            (over, graph)
            for over in plan.runs
            for graph in plan.graphs[over.start : over.start + over.period]
        ]
        for (run, graph), (next_run, next_graph) in itertools.pairwise(graphs):
            leaves = run.count > 1 and run is not next_run
            enters = next_run.count > 1 and run is not next_run
            self._drawing.edge(
                self._id(plan.shown[graph.nodes[-1]]),
                self._id(next_graph.nodes[0]),
                ltail=self._cluster("graphs" if leaves else "graph", graph.number),
                lhead=self._cluster("graphs" if enters else "graph", next_graph.number),
                color=labels.GREY,
                style="dashed",
            )

    def _cluster(self, *what: object) -> str:
        return "_".join(map(str, (_cluster(self._number), *what)))

    def _id(self, node: int) -> str:
        return f"p{self._number}n{node}"


def _join(drawing: Any, before: _Shown, after: _Shown) -> None:
    """Puts a program below the previous one, with the operations between them."""
    if not before.program.nodes or not after.program.nodes:
        return
    a, b = before.number, after.number
    tail = f"p{a}n{before.plan.shown[before.plan.graphs[-1].nodes[-1]]}"
    head = f"p{b}n{after.plan.graphs[0].nodes[0]}"
    if not after.program.split_by:
        drawing.edge(tail, head, style="invis")
        return
    rows = ["<B>left to XLA</B>", *(escape(words.operation(op)) for op in after.program.split_by)]
    box = f"split{b}"
    drawing.node(
        box, label=labels.box(rows, "#fff8c5", labels.SPLIT), tooltip="what splits the region"
    )
    drawing.edge(tail, box, ltail=_cluster(a), color=labels.SPLIT, penwidth="2")
    drawing.edge(box, head, lhead=_cluster(b), color=labels.SPLIT, penwidth="2")


def _cluster(number: int) -> str:
    return f"cluster_{number}"

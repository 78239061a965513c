"""An explanation as a drawing, in Graphviz's language."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from jax_graphenc.explanation import text as words
from jax_graphenc.explanation.data import Edge, Node, Program, Report
from jax_graphenc.explanation.groups import Graph, Layout, Run, layout

if TYPE_CHECKING:
    import graphviz


FORMATS = ("svg", "pdf", "png")
"""What Graphviz can make of a drawing, as suffixes of files."""

_FONT = "Helvetica"
_INK = "#1f2328"
_GREY = "#8c959f"  # of borders
_FADED = "#57606a"  # of text
_SPLIT = "#9a6700"
_REPEATED = "#e8ecf0"
# Fills that dark text can be read on, one for each kernel in turn.
_FILLS = ("#cfe3fa", "#d5efd3", "#fbe0c4", "#e6dbf7", "#fad4dc", "#cdeeee", "#f4eeb8", "#e3ddd3")
_FILL_OF_MEMORY = "#eceff2"  # fills and copies
_COLORS = {
    "read-after-write": "#0a5bc4",
    "write-after-read": "#b35900",
    "write-after-write": "#c4221f",
}
_SHORT = {"read-after-write": "RAW", "write-after-read": "WAR", "write-after-write": "WAW"}
# Nodes of a graph that nothing orders stand in rows of so many.
_ROW = 8


def digraph(report: Report, *, full: bool) -> graphviz.Digraph:
    """Draws programs as clusters, their graphs as clusters inside, and nodes with their edges."""
    import graphviz  # only who draws needs it

    drawing = graphviz.Digraph(
        graphviz.escape(report.function),  # <lambda> would be HTML
        graph_attr={
            "fontname": _FONT,
            "fontcolor": _INK,
            "labelloc": "b",
            "compound": "true",
            "newrank": "true",
            "nodesep": "0.35",
            "ranksep": "0.55",
            "label": _legend(report),
        },
        node_attr={"fontname": _FONT, "fontcolor": _INK, "fontsize": "11", "shape": "plain"},
        edge_attr={"fontname": _FONT, "fontsize": "10", "color": _INK, "arrowsize": "0.7"},
    )
    fills = _fills(report)
    before: tuple[int, Program, Layout] | None = None
    for first, last, program in words.repeated(report.programs, full=full):
        plan = layout(program, full=full)
        _Drawing(drawing, report, first, last, program, plan, fills).draw()
        if before is not None:
            _join(drawing, before, (first, program, plan))
        before = first, program, plan
    return drawing


def boxes(report: Report) -> int:
    """How many nodes the drawing shows."""
    return sum(
        len(set(layout(program, full=False).shown))
        for *_, program in words.repeated(report.programs, full=False)
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
    return {name: _FILLS[i % len(_FILLS)] for i, name in enumerate(kernels)}


class _Drawing:
    """Draws one program."""

    def __init__(
        self,
        drawing: graphviz.Digraph,
        report: Report,
        first: int,
        last: int,
        program: Program,
        plan: Layout,
        fills: dict[str, str],
    ) -> None:
        self._drawing = drawing
        self._report = report
        self._number = first
        self._last = last
        self._program = program
        self._plan = plan
        self._fills = fills
        self._graph_of = {i: graph.number for graph in plan.graphs for i in graph.nodes}
        self._position = {i: k for k, i in enumerate(i for g in plan.graphs for i in g.nodes)}

    def draw(self) -> None:
        cluster = _cluster(self._number)
        with self._drawing.subgraph(name=cluster) as inside:
            inside.attr(
                label=self._title(), labelloc="t", labeljust="l", style="rounded,filled",
                color=_GREY, fillcolor="#f6f8fa", margin="14", fontsize="13",
            )  # fmt: skip
            for over in self._plan.runs:
                self._graphs(inside, over)
        self._edges()

    def _title(self) -> str:
        number, program = self._number, self._program
        title = words.title(number, program)
        if self._last > number:
            title += f", and {self._last - number} more like it"
        more = [*words.places(program), f"run by {words.run_by(self._report, program)}"]
        if len(program.graphs) > 1:
            more.append(f"cut {words.cuts(program)}")
        more += words.buffers(program.arguments)
        more += words.buffers(program.results)
        if program.scratch is not None:
            more.append(f"scratch {words.scratch(self._report, program)}")
        return _lines(title, more)

    def _graphs(self, parent: Any, over: Run) -> None:
        if over.count > 1:
            with parent.subgraph(name=self._cluster("graphs", over.start)) as repeated:
                what = f"{words.repetition(over)}, graphs {over.start + 1} to {over.stop}"
                repeated.attr(label=_lines(what), fillcolor=_REPEATED)
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
                inside.attr(label=_lines(what), style="rounded,filled,dashed", fillcolor="white")
                self._graph(inside, graph)

    def _graph(self, parent: Any, graph: Graph) -> None:
        for run in graph.runs:
            pattern = graph.nodes[run.start : run.start + run.period]
            if run.count > 1 and run.period > 1:
                with parent.subgraph(name=self._cluster("run", pattern[0])) as inside:
                    # Short, since edges cross it.
                    inside.attr(label=_lines(words.repetition(run)), fillcolor=_REPEATED)
                    for i in pattern:
                        self._node(inside, self._program.nodes[i], f"#{i}")
            else:
                for i in pattern:
                    numbers = words.numbers(graph.nodes, run)
                    many = f"x {run.count}, {numbers}" if run.count > 1 else f"#{i}"
                    self._node(parent, self._program.nodes[i], many)
        self._rows(parent, graph)

    def _rows(self, parent: Any, graph: Graph) -> None:
        """Puts nodes that nothing orders into rows, since one row of all could not be read."""
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
        fill = self._fills.get(node.label, _FILL_OF_MEMORY)
        rows = [f"<B>{escape(node.label)}</B> <FONT COLOR='{_FADED}'>{numbers}</FONT>"]
        if launch := words.launch(node).strip():
            rows.append(escape(launch))
        rows += (_arrows(escape(words.use(use))) for use in node.uses)
        parent.node(self._id(node.index), label=_box(rows, fill, _GREY), tooltip=node.label)

    def _edges(self) -> None:
        shown = self._plan.shown
        drawn: dict[tuple[int, int, str], tuple[str, bool]] = {}
        for node in self._program.nodes:
            for edge in node.after:
                # Graphs run one after the other, on one stream: no edge goes from one to another.
                if self._graph_of[edge.on] == self._graph_of[node.index]:
                    on, to = shown[edge.on], shown[node.index]
                    label, color = _label(edge)
                    again = self._position[on] >= self._position[to]
                    drawn[on, to, label] = color, again
        for (on, to, label), (color, again) in drawn.items():
            # An edge into the next repetition goes up; dot makes room for those that go down.
            ends = (to, on) if again else (on, to)
            way = "back" if again else "forward"
            self._drawing.edge(
                *map(self._id, ends), label=label, dir=way, color=color, fontcolor=color
            )
        self._order_of_graphs()

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
                color=_GREY,
                style="dashed",
            )

    def _cluster(self, *what: object) -> str:
        return "_".join(map(str, (_cluster(self._number), *what)))

    def _id(self, node: int) -> str:
        return f"p{self._number}n{node}"


def _label(edge: Edge) -> tuple[str, str]:
    """What an edge says, a line for each kind of hazard, and its color."""
    kinds: dict[str, dict[str, None]] = {}
    for hazard in edge.hazards:
        named = f"{hazard.use.parameter} ({hazard.use.memory.name})"
        kinds.setdefault(hazard.kind, {})[named] = None
    lines = [f"  {_SHORT[kind]} {', '.join(named)}  \\l" for kind, named in kinds.items()]
    return "".join(lines), _COLORS[next(kind for kind in _COLORS if kind in kinds)]


def _join(
    drawing: Any, before: tuple[int, Program, Layout], after: tuple[int, Program, Layout]
) -> None:
    """Puts a program below the one before it, with what splits them in between."""
    (a, first, first_plan), (b, second, second_plan) = before, after
    if not first.nodes or not second.nodes:
        return
    tail = f"p{a}n{first_plan.shown[first_plan.graphs[-1].nodes[-1]]}"
    head = f"p{b}n{second_plan.graphs[0].nodes[0]}"
    if not second.split_by:
        drawing.edge(tail, head, style="invis")
        return
    rows = ["<B>left to XLA</B>", *(escape(words.operation(op)) for op in second.split_by)]
    box = f"split{b}"
    drawing.node(box, label=_box(rows, "#fff8c5", _SPLIT), tooltip="what splits the region")
    drawing.edge(tail, box, ltail=_cluster(a), color=_SPLIT, penwidth="2")
    drawing.edge(box, head, lhead=_cluster(b), color=_SPLIT, penwidth="2")


def _cluster(number: int) -> str:
    return f"cluster_{number}"


def _lines(title: str, more: Iterable[str] = ()) -> str:
    """A cluster's label: lines to the left, the first in bold."""
    rest = "".join(
        f"<FONT POINT-SIZE='11'>{escape(line)}</FONT><BR ALIGN='LEFT'/>" for line in more
    )
    return f"<<B>{escape(title)}</B><BR ALIGN='LEFT'/>{rest}>"


def _box(rows: Iterable[str], fill: str, border: str) -> str:
    """A node's label: rows of text. Spaces make up for fonts that are wider than dot's."""
    cells = "".join(f"<TR><TD ALIGN='LEFT'>&#160;{row}&#160;&#160;</TD></TR>" for row in rows)
    return (
        f"<<TABLE BORDER='1' COLOR='{border}' BGCOLOR='{fill}' STYLE='ROUNDED' CELLBORDER='0' "
        f"CELLSPACING='0' CELLPADDING='3'>{cells}</TABLE>>"
    )


def _arrows(text: str) -> str:
    for ascii, arrow in ("&lt;-&gt;", "&#8596;"), ("&lt;-", "&#8592;"), ("-&gt;", "&#8594;"):
        text = text.replace(ascii, arrow)
    return text


def _legend(report: Report) -> str:
    hazards = "".join(
        f"<TD><FONT COLOR='{color}'><B>&#8594; {_SHORT[kind]}</B> {kind}</FONT></TD>"
        for kind, color in _COLORS.items()
    )
    order = "from graph to graph, in the stream's order"
    return (
        "<<TABLE BORDER='0' CELLBORDER='0' CELLSPACING='4'>"
        f"<TR><TD COLSPAN='4'><B>{escape(report.function)}</B>, compiled for "
        f"{escape(report.target)}</TD></TR>"
        f"<TR>{hazards}<TD><FONT COLOR='{_FADED}'>&#8674; {order}</FONT></TD></TR></TABLE>>"
    )

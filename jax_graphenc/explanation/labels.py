"""The labels of a drawing, in Graphviz's HTML, and its colors."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from jax_graphenc.explanation.data import Edge, Report

INK = "#1f2328"
GREY = "#8c959f"  # of borders
FADED = "#57606a"  # of text
SPLIT = "#9a6700"
REPEATED = "#e8ecf0"
# Background colors for dark text; kernels take them in turn.
FILLS = ("#cfe3fa", "#d5efd3", "#fbe0c4", "#e6dbf7", "#fad4dc", "#cdeeee", "#f4eeb8", "#e3ddd3")
FILL_OF_MEMORY = "#eceff2"  # fills and copies

_COLORS = {
    "read-after-write": "#0a5bc4",
    "write-after-read": "#b35900",
    "write-after-write": "#c4221f",
}
_SHORT = {"read-after-write": "RAW", "write-after-read": "WAR", "write-after-write": "WAW"}


def edge(drawn: Edge) -> tuple[str, str]:
    """An edge's label, with a line for each kind of hazard, and its color."""
    kinds: dict[str, dict[str, None]] = {}
    for hazard in drawn.hazards:
        named = f"{hazard.use.parameter} ({hazard.use.memory.name})"
        kinds.setdefault(hazard.kind, {})[named] = None
    lines = [f"  {_SHORT[kind]} {', '.join(named)}  \\l" for kind, named in kinds.items()]
    return "".join(lines), next((_COLORS[kind] for kind in _COLORS if kind in kinds), FADED)


def title(first: str, more: Iterable[str] = ()) -> str:
    """A cluster's label: left-aligned lines, the first in bold."""
    rest = "".join(
        f"<FONT POINT-SIZE='11'>{escape(line)}</FONT><BR ALIGN='LEFT'/>" for line in more
    )
    return f"<<B>{escape(first)}</B><BR ALIGN='LEFT'/>{rest}>"


def box(rows: Iterable[str], fill: str, border: str) -> str:
    """A node's label: rows of text, with spaces for fonts wider than the one dot measures with."""
    cells = "".join(f"<TR><TD ALIGN='LEFT'>&#160;{row}&#160;&#160;</TD></TR>" for row in rows)
    return (
        f"<<TABLE BORDER='1' COLOR='{border}' BGCOLOR='{fill}' STYLE='ROUNDED' CELLBORDER='0' "
        f"CELLSPACING='0' CELLPADDING='3'>{cells}</TABLE>>"
    )


def arrows(text: str) -> str:
    """Escaped text with arrows for ``<->``, ``<-`` and ``->``."""
    for ascii, arrow in ("&lt;-&gt;", "&#8596;"), ("&lt;-", "&#8592;"), ("-&gt;", "&#8594;"):
        text = text.replace(ascii, arrow)
    return text


def legend(report: Report) -> str:
    """The drawing's label: the function, and what the colors mean."""
    hazards = "".join(
        f"<TD><FONT COLOR='{color}'><B>&#8594; {_SHORT[kind]}</B> {kind}</FONT></TD>"
        for kind, color in _COLORS.items()
    )
    order = "from graph to graph, in the stream's order"
    return (
        "<<TABLE BORDER='0' CELLBORDER='0' CELLSPACING='4'>"
        f"<TR><TD COLSPAN='4'><B>{escape(report.function)}</B>, compiled for "
        f"{escape(report.target)}</TD></TR>"
        f"<TR>{hazards}<TD><FONT COLOR='{FADED}'>&#8674; {order}</FONT></TD></TR></TABLE>>"
    )

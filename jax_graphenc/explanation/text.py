"""A report as text for a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

from jax_graphenc.explanation import words
from jax_graphenc.explanation.data import Program, Report
from jax_graphenc.explanation.groups import Graph, Layout, Run, layout, repeated

_LEAST_WIDTH = 40
_HELD = "\xa0"  # a space without a line break
_MOST_NODES = 100  # shown of a program, unless full


def text(report: Report, width: int | None, *, full: bool) -> str:
    """The report, wrapped to a width or to the terminal's."""
    if width is None:
        width = shutil.get_terminal_size().columns
    width = max(width, _LEAST_WIDTH)
    lines: list[str] = []
    for indent, hang, line in _report(report, full=full):
        lines += textwrap.wrap(
            line,
            width,
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hang),
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines).replace(_HELD, " ")


# The indentation of a line, the extra indentation of its continuation, and its text.
_Line = tuple[int, int, str]


def _report(report: Report, *, full: bool) -> Iterator[_Line]:
    programs = report.programs
    nodes = sum(len(program.nodes) for program in programs)
    counts = f"{words.counted(len(programs), 'program')}, {words.counted(nodes, 'node')}"
    yield 0, 2, f"{report.function}, compiled for {report.target}: {counts}"
    for kernel in report.references:
        yield 0, 2, f"runs its reference instead: {words.operation(kernel)}"
    for first, last, program in repeated(programs, full=full):
        yield 0, 0, ""
        yield from _program(report, first, program, full=full)
        if last > first:
            alone = last == first + 1
            others = f"program {last + 1}" if alone else f"programs {first + 2} to {last + 1}"
            yield 0, 2, f"{others}: the same again"


def _program(report: Report, number: int, program: Program, *, full: bool) -> Iterator[_Line]:
    if program.split_by:
        yield 2, 2, "split from the previous program by operations of XLA:"
        for op in program.split_by:
            yield 4, 2, words.operation(op)
        yield 0, 0, ""
    yield 0, 2, words.title(number, program)
    for line in words.places(program):
        yield 2, 2, line
    kernels = ", ".join(f"{name} {n}" for name, n in program.kernels().items()) or "none"
    yield (
        2,
        12,
        f"{'nodes':<12}{len(program.nodes)} ({kernels}), {words.counted(program.edges, 'edge')}",
    )
    yield 2, 12, f"{'run by':<12}{words.run_by(report, program)}"
    if len(program.graphs) > 1:
        yield 2, 12, f"{'cuts':<12}{words.cuts(program)}"
    for name, memories in ("arguments", program.arguments), ("results", program.results):
        if memories:
            yield 2, 12, f"{name:<12}{', '.join(words.buffers(memories))}"
    if program.scratch:
        yield 2, 12, f"{'scratch':<12}{words.scratch(report, program)}"
    yield from _nodes(program, layout(program, full=full), full=full)


def _nodes(program: Program, plan: Layout, *, full: bool) -> Iterator[_Line]:
    left = len(set(plan.shown))
    most = left if full else _MOST_NODES
    for over in plan.runs:
        indent = 2
        if over.count > 1:
            yield indent, 2, f"{words.repetition(over)}, graphs {over.start + 1} to {over.stop}:"
            indent += 2
        for graph in plan.graphs[over.start : over.start + over.period]:
            if len(plan.graphs) > 1:
                yield (
                    indent,
                    2,
                    f"graph {graph.number + 1}: {words.counted(len(graph.nodes), 'node')}",
                )
            for run in graph.runs:
                if most <= 0:
                    yield indent, 2, f"... and {left} more different nodes: full=True shows them"
                    return
                most -= run.period
                left -= run.period
                yield from _run(program, graph, run, indent + 2)


def _run(program: Program, graph: Graph, run: Run, indent: int) -> Iterator[_Line]:
    if run.count > 1:
        yield indent, 2, f"{words.repetition(run)}, {words.numbers(graph.nodes, run)}:"
        indent += 2
    for i in graph.nodes[run.start : run.start + run.period]:
        node = program.nodes[i]
        yield indent, 8, f"{f'#{i}':<4}  {node.label}{words.launch(node)}"
        if not node.uses:  # a join, which touches nothing itself
            yield indent + 6, 2, f"after {', '.join(f'#{edge.on}' for edge in node.after)}"
            continue
        yield indent + 6, 2, "  ".join(words.use(u).replace(" ", _HELD) for u in node.uses)
        for edge in node.after:
            yield indent + 6, 2, f"after #{edge.on}: {', '.join(map(words.hazard, edge.hazards))}"

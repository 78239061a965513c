"""An explanation as text for a terminal."""

from __future__ import annotations

import itertools
import math
import shutil
import textwrap
from collections.abc import Iterator, Sequence

from jax_graphenc.base.shapes import Dim3
from jax_graphenc.explanation.data import Hazard, Memory, Node, Operation, Program, Report, Use
from jax_graphenc.explanation.groups import Graph, Run, layout
from jax_graphenc.programs.custom_call import PROGRAM, UNCAPTURED_PROGRAM

_LEAST_WIDTH = 40
_HELD = "\xa0"  # a space at which no line ends
_CUTS_SHOWN = 8
_MOST_NODES = 100  # of a program, if not all are asked for


def text(report: Report, width: int | None, *, full: bool) -> str:
    """The report, in lines of so many columns, or of the terminal's."""
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


# Columns in front, more of them where the line goes on, and what stands there.
_Line = tuple[int, int, str]


def _report(report: Report, *, full: bool) -> Iterator[_Line]:
    programs = report.programs
    nodes = sum(len(program.nodes) for program in programs)
    yield (
        0,
        2,
        (
            f"{report.function}, compiled for {report.target}: "
            f"{counted(len(programs), 'program')}, {counted(nodes, 'node')}"
        ),
    )
    for kernel in report.references:
        yield 0, 2, f"runs its reference instead: {operation(kernel)}"
    for first, last, program in repeated(programs, full=full):
        yield 0, 0, ""
        yield from _program(report, first, program, full=full)
        if last > first:
            others = (
                f"program {last + 1}"
                if last == first + 1
                else f"programs {first + 2} to {last + 1}"
            )
            yield 0, 2, f"{others}: the same again"


def repeated(programs: Sequence[Program], *, full: bool) -> Iterator[tuple[int, int, Program]]:
    """Equal programs that follow each other, as the first one's and the last one's number."""
    first = 0
    for i in range(1, len(programs) + 1):
        if i < len(programs) and not full and programs[i] == programs[first]:
            continue
        yield first, i - 1, programs[first]
        first = i


def _program(report: Report, number: int, program: Program, *, full: bool) -> Iterator[_Line]:
    if program.split_by:
        yield 2, 2, "split from the program before by what is left to XLA:"
        for op in program.split_by:
            yield 4, 2, operation(op)
        yield 0, 0, ""
    yield 0, 2, title(number, program)
    for line in places(program):
        yield 2, 2, line
    kernels = ", ".join(f"{name} {n}" for name, n in program.kernels().items()) or "none"
    yield 2, 12, f"{'nodes':<12}{len(program.nodes)} ({kernels}), {counted(program.edges, 'edge')}"
    yield 2, 12, f"{'run by':<12}{run_by(report, program)}"
    if len(program.graphs) > 1:
        yield 2, 12, f"{'cuts':<12}{cuts(program)}"
    for name, memories in ("arguments", program.arguments), ("results", program.results):
        if memories:
            yield 2, 12, f"{name:<12}{', '.join(buffers(memories))}"
    if program.scratch:
        yield 2, 12, f"{'scratch':<12}{scratch(report, program)}"
    plan = layout(program, full=full)
    left = len(set(plan.shown))
    most = left if full else _MOST_NODES
    for over in plan.runs:
        indent = 2
        if over.count > 1:
            yield indent, 2, f"{repetition(over)}, graphs {over.start + 1} to {over.stop}:"
            indent += 2
        for graph in plan.graphs[over.start : over.start + over.period]:
            if len(plan.graphs) > 1:
                yield indent, 2, f"graph {graph.number + 1}: {counted(len(graph.nodes), 'node')}"
            for run in graph.runs:
                if most <= 0:
                    yield indent, 2, f"... and {left} more that are not alike: full=True shows them"
                    return
                most -= run.period
                left -= run.period
                yield from _run(program, graph, run, indent + 2)


def _run(program: Program, graph: Graph, run: Run, indent: int) -> Iterator[_Line]:
    if run.count > 1:
        yield indent, 2, f"{repetition(run)}, {numbers(graph.nodes, run)}:"
        indent += 2
    for i in graph.nodes[run.start : run.start + run.period]:
        node = program.nodes[i]
        yield indent, 8, f"{f'#{i}':<4}  {node.label}{launch(node)}"
        yield indent + 6, 2, "  ".join(use(u).replace(" ", _HELD) for u in node.uses)
        for edge in node.after:
            yield indent + 6, 2, f"after #{edge.on}: {', '.join(map(hazard, edge.hazards))}"


# ---------------------------------------------------------------- words, also of drawings


def counted(n: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def title(number: int, program: Program) -> str:
    """A program's number and what it is of."""
    of = f"kernel '{program.name}'" if program.region is None else f"region '{program.region}'"
    return f"program {number + 1}: {of}"


def places(program: Program) -> Iterator[str]:
    """Where a program comes from, the innermost first."""
    if program.where:
        yield f"called at {program.where}"
    yield from (f"in {inside}" for inside in reversed(program.inside))


def numbers(nodes: Sequence[int], run: Run) -> str:
    """The nodes of a run."""
    of_run = nodes[run.start : run.stop]
    return f"#{min(of_run)} to #{max(of_run)}"


def repetition(run: Run) -> str:
    """How often a run's pattern comes."""
    return f"x {run.count}"


def run_by(report: Report, program: Program) -> str:
    """Who runs a program, and as how many graphs."""
    if not program.nodes:
        return "nobody: nothing is launched"
    if not program.graphs:
        ours = "launches on the stream, one by one" if len(program.nodes) > 1 else "a launch"
    else:
        graphs = len(program.graphs)
        ours = f"the encoder, as {counted(graphs, 'executable graph')}"
    if report.target == "cpu":
        return ours
    if not program.uncaptured:
        return f"XLA's command buffers where XLA captures the call, otherwise {ours} ({PROGRAM})"
    return f"{ours}; kept out of XLA's command buffers ({UNCAPTURED_PROGRAM})"


def size(bytes: int) -> str:
    """Bytes as a person says them: ``1.2 MB``."""
    if bytes < 1000:
        return f"{bytes} B"
    power = min(int(math.log10(bytes)) // 3, 4)
    return f"{bytes / 1000**power:.3g} {' kMGT'[power]}B"


def cuts(program: Program) -> str:
    """Where a graph is committed and the next one begins."""
    first = [f"#{graph[0]}" for graph in program.graphs[1:]]
    if len(first) > _CUTS_SHOWN:
        first[_CUTS_SHOWN - 2 : -1] = ["..."]
    return f"before {', '.join(first)}: a graph is full with {program.max_ops} nodes"


def buffers(memories: Sequence[Memory]) -> Iterator[str]:
    """Buffers with their types, those of one type together."""
    for _, group in itertools.groupby(memories, lambda m: m.shares or (m.type, m.bytes)):
        first, *others = group
        names = first.name
        if others:
            names += f"{' to' if others[1:] else ','} {others[-1].name}"
        shares = f" in the memory of {first.shares}" if first.shares else ""
        yield f"{names} {first.type} ({size(first.bytes)}{' each' if others else ''}){shares}"


def scratch(report: Report, program: Program) -> str:
    """Scratch memory, and how much it is used again."""
    assert program.scratch is not None
    values, whole = program.scratch_values()
    return (
        f"{size(program.scratch.bytes)} for {counted(values, 'value')} of {size(whole)} in all "
        f"(scratch_reuse='{report.scratch_reuse}')"
    )


def dimensions(dim: Dim3) -> str:
    """``16 x 38``: without ones at the end."""
    while len(dim) > 1 and dim[-1] == 1:
        dim = dim[:-1]  # type: ignore[assignment]
    return " x ".join(map(str, dim))


def launch(node: Node) -> str:
    """A kernel's launch."""
    if node.launch is None:
        return ""
    grid, block, cluster = node.launch
    words = [f"  grid {dimensions(grid)}, block {dimensions(block)}"]
    if math.prod(cluster) > 1:
        words.append(f"cluster {dimensions(cluster)}")
    if node.shared_bytes:
        words.append(f"{size(node.shared_bytes)} shared")
    if node.cooperative:
        words.append("cooperative")
    return ", ".join(words)


def place(memory: Memory, begin: int, end: int) -> str:
    """Bytes of a buffer; all of it by its name alone."""
    return memory.name if (begin, end) == (0, memory.bytes) else f"{memory.name}[{begin}:{end}]"


def use(use: Use) -> str:
    """A pointer, with an arrow in the direction that the data takes."""
    arrow = {(True, False): "<-", (False, True): "->", (True, True): "<->"}[use.reads, use.writes]
    return f"{use.parameter} {arrow} {place(use.memory, use.begin, use.end)}"


def hazard(hazard: Hazard) -> str:
    """A hazard, with the bytes if they are not all that the node takes for the parameter."""
    whole = (hazard.begin, hazard.end) == (hazard.use.begin, hazard.use.end)
    where = "" if whole else f" in {place(hazard.use.memory, hazard.begin, hazard.end)}"
    return f"{hazard.kind} of {hazard.use.parameter}{where}"


def operation(op: Operation) -> str:
    """An operation of XLA's, with its line."""
    times = f" x {op.count}" if op.count > 1 else ""
    return f"{op.name}{times}{': ' if op.where else ''}{op.where}"

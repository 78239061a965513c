"""The words of a report, shared by its views."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from jax_graphenc.base.shapes import Dim3
from jax_graphenc.explanation.data import Hazard, Memory, Node, Operation, Program, Report, Use
from jax_graphenc.explanation.groups import Run
from jax_graphenc.programs.custom_call import PROGRAM, UNCAPTURED_PROGRAM

_CUTS_SHOWN = 8


def counted(n: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def title(number: int, program: Program) -> str:
    """A program's number, and its kernel or region."""
    of = f"kernel '{program.name}'" if program.region is None else f"region '{program.region}'"
    return f"program {number + 1}: {of}"


def places(program: Program) -> Iterator[str]:
    """The call and the control flow around a program, innermost first."""
    if program.where:
        yield f"called at {program.where}"
    yield from (f"in {inside}" for inside in reversed(program.inside))


def numbers(nodes: Sequence[int], run: Run) -> str:
    """The node numbers of a run."""
    of_run = nodes[run.start : run.stop]
    return f"#{min(of_run)} to #{max(of_run)}"


def repetition(run: Run) -> str:
    """The count of a run."""
    return f"x {run.count}"


def run_by(report: Report, program: Program) -> str:
    """What launches a program, and as how many graphs."""
    if not program.nodes:
        return "nothing: the program has no nodes"
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
    """Bytes in a readable unit: ``1.2 MB``."""
    if bytes < 1000:
        return f"{bytes} B"
    power = min(int(math.log10(bytes)) // 3, 4)
    return f"{bytes / 1000**power:.3g} {' kMGT'[power]}B"


def cuts(program: Program) -> str:
    """The nodes before which a graph is committed."""
    first = [f"#{graph[0]}" for graph in program.graphs[1:]]
    if len(first) > _CUTS_SHOWN:
        first[_CUTS_SHOWN - 2 : -1] = ["..."]
    return f"before {', '.join(first)}: a graph is full with {program.max_ops} nodes"


def buffers(memories: Sequence[Memory]) -> Iterator[str]:
    """Buffers with their types, grouped by type."""
    for _, group in itertools.groupby(memories, lambda m: m.shares or (m.type, m.bytes)):
        first, *others = group
        names = first.name
        if others:
            names += f"{' to' if others[1:] else ','} {others[-1].name}"
        shares = f" in the memory of {first.shares}" if first.shares else ""
        yield f"{names} {first.type} ({size(first.bytes)}{' each' if others else ''}){shares}"


def scratch(report: Report, program: Program) -> str:
    """Scratch memory, and the values that share it."""
    assert program.scratch is not None
    values, whole = program.scratch_values()
    return (
        f"{size(program.scratch.bytes)} for {counted(values, 'value')} of {size(whole)} in all "
        f"(scratch_reuse='{report.scratch_reuse}')"
    )


def dimensions(dim: Dim3) -> str:
    """``16 x 38``: without trailing ones."""
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
    """A byte range of a buffer; the whole buffer by its name alone."""
    return memory.name if (begin, end) == (0, memory.bytes) else f"{memory.name}[{begin}:{end}]"


def use(use: Use) -> str:
    """A pointer, with an arrow in the direction of the data."""
    arrow = {(True, False): "<-", (False, True): "->", (True, True): "<->"}[use.reads, use.writes]
    return f"{use.parameter} {arrow} {place(use.memory, use.begin, use.end)}"


def hazard(hazard: Hazard) -> str:
    """A hazard, with its bytes unless they are the whole access."""
    whole = (hazard.begin, hazard.end) == (hazard.use.begin, hazard.use.end)
    where = "" if whole else f" in {place(hazard.use.memory, hazard.begin, hazard.end)}"
    return f"{hazard.kind} of {hazard.use.parameter}{where}"


def operation(op: Operation) -> str:
    """An operation of XLA's, and the user's line."""
    times = f" x {op.count}" if op.count > 1 else ""
    return f"{op.name}{times}{': ' if op.where else ''}{op.where}"

"""The data of a report: programs as the native part decodes and records them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jax_graphenc import _core
from jax_graphenc.base.shapes import Dim3


@dataclass(frozen=True, slots=True)
class Memory:
    """A buffer of a program.

    Attributes:
        name: ``arg0``, ``out0`` or ``scratch``.
        type: dtype and shape, ``f32[3,512]``; of scratch memory ``""``.
        bytes: its size.
        shares: the argument that a result shares memory with, or ``""``.
    """

    name: str
    type: str
    bytes: int
    shares: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """A node's use of one of its pointers.

    Attributes:
        parameter: its name in the kernel's source; ``from`` and ``to`` of fills and copies.
        memory: the buffer.
        begin, end: the bytes of the buffer that the node may touch.
        reads, writes: whether it reads and writes them.
    """

    parameter: str
    memory: Memory
    begin: int
    end: int
    reads: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class Hazard:
    """Bytes that two nodes touch and at least one writes.

    Attributes:
        kind: ``read-after-write``, ``write-after-read`` or ``write-after-write``. A read-write
            access of the later node counts as a read.
        use: the later node's access.
        begin, end: the bytes of its buffer.
    """

    kind: str
    use: Use
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Edge:
    """A node waits for an earlier one; edges implied by others are left out.

    Attributes:
        on: the earlier node.
        hazards: the reasons.
    """

    on: int
    hazards: tuple[Hazard, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A kernel, fill or copy.

    Attributes:
        index: its number in the program.
        label: the kernel's name as the user knows it, ``fill`` or ``copy``.
        launch: grid, block and cluster; ``None`` for a fill or copy.
        shared_bytes: dynamic shared memory of each block.
        cooperative: whether all blocks must run at the same time.
        uses: its pointers, in the kernel's order.
        after: the edges to nodes that it waits for.
    """

    index: int
    label: str
    launch: tuple[Dim3, Dim3, Dim3] | None
    shared_bytes: int
    cooperative: bool
    uses: tuple[Use, ...]
    after: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of XLA's, and the user's line."""

    name: str
    where: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Program:
    """A custom call of the lowered function.

    Attributes:
        name: of the program.
        region: its region's name, or ``None`` for a lone kernel.
        where: file, line and function that call the region or kernel, if known.
        inside: the control flow around it, outermost first: ``scan of 10 steps``.
        split_by: XLA's operations that split the region's previous program from this one.
        uncaptured: whether it stays out of XLA's command buffers.
        encoded: the custom call's bytes.
        arguments, results: of the custom call, scratch memory excluded.
        scratch: memory for the program's inner values, or ``None``.
        nodes: by number.
        graphs: node numbers of each graph that the encoder makes, in order. The encoder commits a
            graph where the next one begins, and never splits a level of the data flow. Empty if the
            nodes are launched one by one.
        max_ops: the most nodes of a graph.
    """

    name: str
    region: str | None
    where: str
    inside: tuple[str, ...]
    split_by: tuple[Operation, ...]
    uncaptured: bool
    encoded: bytes = field(repr=False)
    arguments: tuple[Memory, ...]
    results: tuple[Memory, ...]
    scratch: Memory | None
    nodes: tuple[Node, ...] = field(repr=False)
    graphs: tuple[tuple[int, ...], ...] = field(repr=False)
    max_ops: int

    @property
    def edges(self) -> int:
        """The number of edges."""
        return sum(len(node.after) for node in self.nodes)

    def kernels(self) -> dict[str, int]:
        """Launches of each kernel; fills and copies by these names."""
        return dict(Counter(node.label for node in self.nodes))

    def scratch_values(self) -> tuple[int, int]:
        """The number of values in scratch memory, and their total bytes."""
        made = [
            use.end - use.begin
            for node in self.nodes
            for use in node.uses
            if use.memory is self.scratch and use.writes and not use.reads
        ]
        return len(made), sum(made)


def describe(
    encoded: bytes,
    arguments: Sequence[Memory],
    results: Sequence[Memory],
    max_ops: int,
    use_graphs: bool,
    **of_the_call: Any,
) -> Program:
    """Decodes a program natively and records its edges, as XLA's instantiation does.

    Args:
        encoded: the program's bytes.
        arguments: its buffers.
        results: its result buffers, including scratch memory.
        max_ops: the most nodes of a graph.
        use_graphs: whether nodes are launched as graphs.
        **of_the_call: the other fields of ``Program``.
    """
    told = _core.describe_program(encoded, max_ops)
    scratch = None if told["scratch"] is None else results[told["scratch"]]
    return Program(
        encoded=encoded,
        arguments=tuple(arguments),
        results=tuple(memory for memory in results if memory is not scratch),
        scratch=scratch,
        nodes=tuple(_node(i, n, [*arguments, *results]) for i, n in enumerate(told["nodes"])),
        graphs=tuple(map(tuple, told["graphs"] if use_graphs else ())),
        max_ops=max_ops,
        **of_the_call,
    )


# What a node that is no kernel is called, by what tells it.
_KINDS = (("memset", "fill"), ("join", "join"))
# What kernels of one module share beside their arguments; where that is has no address here.
_VARIABLES = Use("__device__ variables", Memory("module", "", 1), 0, 1, True, True)


def _node(index: int, told: dict[str, Any], buffers: Sequence[Memory]) -> Node:
    uses = tuple(
        Use(name, buffers[buffer], offset, offset + size, reads, writes)
        for (buffer, offset, size), (name, reads, writes) in zip(
            told["buffers"], told["accesses"], strict=True
        )
    )
    hazards: dict[int, list[Hazard]] = {on: [] for on in told["dependencies"]}
    for on, kind, number, begin, end in told["hazards"]:
        known, use = hazards[on], (*uses, _VARIABLES)[number]
        # Join adjacent ranges of one use.
        if known and (known[-1].kind, known[-1].use, known[-1].end) == (kind, use, begin):
            begin = known.pop().begin
        known.append(Hazard(kind, use, begin, end))
    return Node(
        index,
        told.get("kernel") or next((name for told_as, name in _KINDS if told_as in told), "copy"),
        (told["grid"], told["block"], told["cluster"]) if "kernel" in told else None,
        told.get("shared_bytes", 0),
        told.get("cooperative", False),
        uses,
        tuple(Edge(on, tuple(found)) for on, found in hazards.items()),
    )


@dataclass(frozen=True)
class Report:
    """What a function's kernels become; ``Explanation`` documents the fields."""

    function: str
    target: str
    programs: tuple[Program, ...]
    references: tuple[Operation, ...]
    scratch_reuse: str

"""This process's counters, and times of kernels and driver calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jax_graphenc import _core
from jax_graphenc.base.notebooks import ShownAsText
from jax_graphenc.compiler.compile import compile_counts, reset_counts


class Stats(ShownAsText, dict[str, int]):
    """Counts by name; ``print`` shows them as a table."""

    def __str__(self) -> str:
        return table([[name, f"{count:,}"] for name, count in self.items()])


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The times of a program's nodes of one name, in seconds.

    Attributes:
        program: name of the region or lone kernel; ``encoder`` for work of ``jge.Encoder``.
        node: the kernel's name, ``memset``, ``copy`` or ``captured graph``.
        calls: how often they ran.
        total: sum of all times.
        least: the shortest time.
        most: the longest time.
    """

    program: str
    node: str
    calls: int
    total: float
    least: float
    most: float


class KernelTimes(ShownAsText, tuple[KernelTime, ...]):
    """Times by program and node, the largest total first; ``print`` shows them as a table."""

    def __str__(self) -> str:
        if not self:
            return "no kernel was timed: set jge.options(time_kernels=True) before it runs"
        head = ["program", "node", "calls", "total ms", "share", "mean us", "least us", "most us"]
        whole = sum(time.total for time in self) or 1.0
        rows = [
            [
                time.program,
                time.node,
                f"{time.calls:,}",
                f"{1e3 * time.total:.3f}",
                f"{time.total / whole:.0%}",
                f"{1e6 * time.total / time.calls:.2f}",
                f"{1e6 * time.least:.2f}",
                f"{1e6 * time.most:.2f}",
            ]
            for time in self
        ]
        return table([head, *rows], names=2)


def table(rows: Sequence[Sequence[str]], names: int = 1) -> str:
    """Aligned columns: the first ``names`` to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < names else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def stats() -> Stats:
    """Counts since the process began or ``reset_stats`` was called.

    Returns:
        Counts by name, a dict that prints as a table. ``programs`` decoded and the
        ``scratch_bytes`` of their inner values, ``images_loaded``, ``encoders`` made; ``commits``
        of batches, the ``nodes`` in them (kernels, memsets, copies, captures, and the joins that
        end concurrent regions) and the ``bytes`` of memory that they touch, each byte once per
        batch of ``jge.Encoder`` and once per run of a program; of these nodes, ``direct_launches``
        onto a stream and ``captured_nodes`` added to a graph that XLA captures, which count once,
        at the capture; ``graph_launches`` of executable graphs; of these graphs:
        ``instantiations``, ``nodes_patched``, ``exec_hits`` and ``exec_misses`` in their cache,
        ``exec_evictions``, and ``fallbacks_*`` by reason; of the compilers: ``compiled`` sources,
        ``disk_hits`` and ``memory_hits``.
    """
    return Stats({**_core.stats(), **compile_counts()})


def kernel_times() -> KernelTimes:
    """Times of each kernel, if ``options(time_kernels=True)`` was set.

    Nodes run one after the other, each between two events of one graph. So a time includes the
    GPU's start of the node, about a microsecond, but no host time, and nodes do not overlap. On
    the CPU it is the time of the thread that runs the kernel.

    Returns:
        Times in seconds by program and kernel, since the process began or ``reset_stats`` was
        called; a tuple that prints as a table.
    """
    return KernelTimes(
        KernelTime(program, node, calls, 1e-3 * total, 1e-3 * least, 1e-3 * most)
        for program, node, calls, total, least, most in _core.kernel_times()
    )


def driver_calls() -> dict[str, tuple[int, float]]:
    """Times of the CUDA driver's functions, if ``options(time_driver_calls=True)`` was set.

    Returns:
        Calls and total seconds by function, the most expensive first.
    """
    return {name: (calls, 1e-9 * spent) for name, calls, spent in _core.call_times()}


def reset_stats() -> None:
    """Sets all counters and times to zero."""
    _core.reset_stats()
    _core.reset_kernel_times()
    _core.reset_call_times()
    reset_counts()

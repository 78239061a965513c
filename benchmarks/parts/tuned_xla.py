"""FFI calls under XLA's own flags: each alone and all together, in processes of their own.

The best flags for a case, by its time in a row of calls, make the way "XLA, tuned"; its rows name
them. XLA as it comes is measured here too, so that tuning never counts as a loss. One process may
run faster than another, so each also measures a region: "jge.graph beside it" is that of the best
flags. On a machine without FFI calls the package's own kernels stand in, to show that everything
runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apart import run_apart
from harness import Setup
from records import Row

OURS, BESIDE, TUNED = "jge.graph", "jge.graph beside it", "XLA, tuned"
PARTS = ("chain", "concurrency", "loops")
# What XLA's users are told to try for many small kernels (xla/debug_options_flags.cc).
FLAGS = {
    "as it comes": "",
    "loops in graphs": "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL",
    "loops unrolled": "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL"
    " --xla_gpu_command_buffer_unroll_loops=true",
    "concurrent": "--xla_gpu_command_buffer_scheduling_mode=CONCURRENT",
    "small graphs": "--xla_gpu_graph_min_graph_size=1",
    "all": "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL"
    " --xla_gpu_command_buffer_unroll_loops=true"
    " --xla_gpu_command_buffer_scheduling_mode=CONCURRENT --xla_gpu_graph_min_graph_size=1",
}
_STATISTICS = {
    *("part", "way", "kind", "unit", "median", "quartile_1", "quartile_3", "mean", "min", "max"),
    "n",
    "repetitions",  # of a kernel that takes a given time: each process finds its own
}

Case = tuple[tuple[str, Any], ...]


def run(setup: Setup) -> Iterator[Row]:
    peer = "FFI call" if setup.gpu else "cuda_kernel"
    measured: dict[str, list[Row]] = {}
    for name, flags in FLAGS.items():
        try:
            result = run_apart(PARTS, flags, setup.quick, [OURS, peer])
        except RuntimeError as error:  # another XLA may not know a flag
            setup.left_out.append({"way": f"{peer}, {name}", "reason": str(error)[-500:]})
            continue
        setup.left_out += result["left out"]
        measured[name] = result["rows"]
        for row in result["rows"]:
            who = OURS if row["way"] == OURS else "FFI call"
            yield {**row, "way": f"{who}, {name}", "flags": flags}
    yield from best(measured)


def best(measured: dict[str, list[Row]]) -> Iterator[Row]:
    """For each case the rows of the flags that are fastest, as the way "XLA, tuned"."""
    by_case: dict[Case, dict[str, list[Row]]] = {}
    for name, rows in measured.items():
        for row in rows:
            by_case.setdefault(case_of(row), {}).setdefault(name, []).append(row)
    for found in by_case.values():
        name = min(found, key=lambda name: _time(found[name]))
        for row in found[name]:
            yield {**row, "way": BESIDE if row["way"] == OURS else TUNED, "flags": FLAGS[name]}


def case_of(row: Row) -> Case:
    """What a row measures, without the way and the figures."""
    return tuple(sorted((k, v) for k, v in row.items() if k not in _STATISTICS))


def _time(rows: list[Row]) -> float:
    """The time in a row of calls, which a slow way lacks; then that of one call."""
    kinds = {row["kind"]: row["median"] for row in rows if row["way"] != OURS}
    return float(kinds.get("queued", kinds["wall"]))

"""The time of a jitted function's first call, up to its result.

In this process, with compiled kernels and warm caches; and in new processes (``first_calls.py``),
first with empty caches, then with those that the first one filled.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from harness import Setup
from records import Row, row
from work import Chain, Function

PROGRAM = Path(__file__).parent.parent / "first_calls.py"


def timed(function: Function, work: Chain) -> dict[str, float]:
    """Seconds of each step of a first call."""
    gc.collect()
    x = work.argument()
    times = [time.perf_counter()]
    lowered = jax.jit(function).lower(x)
    times.append(time.perf_counter())
    compiled = lowered.compile()
    times.append(time.perf_counter())
    out = jax.block_until_ready(compiled(x))
    times.append(time.perf_counter())
    np.testing.assert_array_equal(out, np.full(work.shape, work.expected(1), np.float32))
    lower, compiling, run = (b - a for a, b in itertools.pairwise(times))
    return {
        "trace and lower": lower,
        "compile": compiling,
        "first run": run,
        "before the run": lower + compiling,
        "first result": lower + compiling + run,
    }


def rows_of(case: dict[str, Any], way: str, runs: list[dict[str, float]]) -> list[Row]:
    """A row per step."""
    return [row(case, way, kind, [run[kind] for run in runs], "s") for kind in runs[0]]


def here(setup: Setup) -> list[Row]:
    """In this process; peers without jitted functions have no first call."""
    counts = (2, 4) if setup.quick else (10, 30, 100, 300, 1000)
    peers = {name: peer for name, peer in setup.peers.items() if hasattr(peer, "functions")}
    largest = 10 * counts[-1]
    runs: dict[tuple[str, int], list[dict[str, float]]] = {}
    for peer in peers.values():
        first_calls(setup, peer, counts[:1])  # loads what is loaded once
    for _ in range(1 if setup.quick else 3):
        for name, peer in peers.items():
            own = (largest,) if name == "jge.graph" else ()
            for key, run in first_calls(setup, peer, (*counts, *own)):
                runs.setdefault(key, []).append(run)
    return [
        row
        for (way, count), each in runs.items()
        for row in rows_of({"work": "first call", "kernels": count, "process": "this"}, way, each)
    ]


def first_calls(
    setup: Setup, peer: Any, counts: tuple[int, ...]
) -> list[tuple[tuple[str, int], dict[str, float]]]:
    """One first call of each way and number of kernels; leaves out ways that fail."""
    found = []
    for count in counts:
        work = Chain(count, moving=True)  # not donated
        for way, function in peer.functions(work).items():
            try:
                found.append(((way, count), timed(function, work)))
            except Exception as error:
                setup.leave_out(work, way, error)
    return found


def child(folder: Path, counts: tuple[int, ...]) -> dict[int, dict[str, float]]:
    """First calls in a new process, with its caches in a folder."""
    environment = {
        **os.environ,
        "JAX_GRAPHENC_CACHE_DIR": str(folder / "kernels"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # this process has most of the memory
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, counts)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return {int(count): run for count, run in json.loads(done.stdout.splitlines()[-1]).items()}


def apart(setup: Setup) -> list[Row]:
    """In new processes."""
    counts = (1, 2) if setup.quick else (1, 10, 100, 1000)
    runs: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(1 if setup.quick else 3):
        with tempfile.TemporaryDirectory() as folder:
            for process in ("first", "second"):
                for count, run in child(Path(folder), counts).items():
                    runs.setdefault((process, count), []).append(run)
    return [
        row
        for (process, count), each in runs.items()
        for row in rows_of(
            {"work": "first call", "kernels": count, "process": process}, "jge.graph", each
        )
    ]


def run(setup: Setup) -> Iterator[Row]:
    yield from here(setup)
    yield from apart(setup)

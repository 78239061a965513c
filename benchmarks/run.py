"""The benchmarks: regions of small kernels against XLA alone, bare FFI calls, Warp and raw graphs.

    python benchmarks/run.py [PART ...] [--out result.json]
    python benchmarks/run.py --quick     only shows that everything runs, also without a GPU

All ways run in one process, in turn, and every result is checked. The ways are

    jge.graph            a region
    cuda_kernel          the same kernels without one, in XLA's command buffers
    FFI call             a bare FFI handler per kernel, in XLA's command buffers; needs g++, cuda.h
    FFI call, no trait   the same, called by XLA each time
    Warp, MODE           one ``jax_callable`` of all launches, by graph mode; needs warp-lang
    XLA, tuned           FFI calls under the XLA flags that are best for the case (tuned_xla)
    raw graph            ``cuGraphLaunch`` of one uncut graph
    CuPy graph           launches captured from a stream; needs cupy

and the measures of a call, in us: ``wall``, from the call to its result; ``queued``, per call of
ten in a row, each on the previous result, which hides the host time; ``host``, to dispatch a call
right after another. ``tools/plot_results.py`` draws the result.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import peers
from apart import run_apart
from bars import judge
from harness import Setup
from parts import PARTS
from records import Row, as_json, environment
from ways import AbsentError

import jax_graphenc as jge


def run_part(name: str, setup: Setup, absent: dict[str, str]) -> Iterable[Row]:
    """The rows of a part, measured here or, where it needs other flags, in its own process."""
    part = PARTS[name]
    flags = getattr(part, "XLA_FLAGS", "")
    if flags in os.environ.get("XLA_FLAGS", ""):
        yield from part.run(setup)
        return
    apart = run_apart([name], flags, setup.quick)
    absent |= apart["absent"]
    setup.left_out += apart["left out"]
    yield from apart["rows"]


def run_parts(names: list[str], quick: bool, only: list[str] | None) -> dict[str, Any]:
    """All measurements, including those of a part before it failed."""
    gpu = jax.default_backend() == "gpu"
    found, absent, failed = peers.find(gpu)
    if only is not None:
        found = {name: peer for name, peer in found.items() if name in only}
    setup = Setup(found, quick, gpu)
    rows: list[Row] = []
    seconds: dict[str, float] = {}
    for name in names:
        start = time.perf_counter()
        try:
            for row in run_part(name, setup, absent):
                rows.append({"part": name, **row})  # a row may name another part
                show(row)
        except AbsentError as error:
            absent[name] = str(error)
            continue
        except Exception as error:
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {error}"
            continue
        seconds[name] = round(time.perf_counter() - start, 1)
    return {
        "benchmark": "jax_graphenc",
        "quick": quick,
        "environment": environment(),
        "absent": absent,
        "left out": setup.left_out,
        "failed": failed,
        "seconds": seconds,
        "rows": rows,
        "bars": list(judge(rows)),
        "stats": jge.stats(),
    }


def show(row: Row) -> None:
    """Prints a line of the table."""
    if "median" not in row:
        print(row)
        return
    hidden = {"part", "way", "kind", "unit", "n", "repetitions", "median", "mean", "min", "max"}
    hidden.add("flags")
    hidden |= {"quartile_1", "quartile_3"}
    case = ", ".join(f"{k} {v}" if k != "work" else v for k, v in row.items() if k not in hidden)
    spread = f"{row['quartile_1']:.4g} to {row['quartile_3']:.4g}"
    what = f"{row['kind']} {row['unit']}"
    print(f"{case:52} {row['way']:27} {what:20} {row['median']:9.4g}   {spread}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: its times mean nothing")
    parser.add_argument("--peers", nargs="+", help="only these of the ways' owners")
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    if jax.default_backend() != "gpu" and not options.quick:
        sys.exit("no GPU here: this measures launches on one; --quick only shows that it runs")

    result = run_parts(options.parts or list(PARTS), options.quick, options.peers)
    for bar in result["bars"] if not options.quick else ():
        met = "met" if bar["met"] else "SHORT"
        print(f"{bar['what']:70} {bar['measured']:9.4g}   {bar['bar']:14} {met}")
    for name, reason in result["absent"].items():
        print(f"{name} is absent: {reason}")
    print(f"seconds: {result['seconds']}")
    if options.quick:
        print("tiny sizes: nothing above is a measurement")
    if options.out:
        options.out.write_text(as_json(result) + "\n")
    if result["failed"]:
        sys.exit("\n".join(f"{name} failed: {why}" for name, why in result["failed"].items()))


if __name__ == "__main__":
    main()

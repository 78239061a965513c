"""Instructions of a warm call in the core, counted by callgrind; and a soak test of warm runs.

Builds benchmarks/core as a release, runs each case under valgrind and counts the instructions of a
warm call. The driver is a stub that answers the calls of a warm run at once and fails on any other.
Needs cmake, a C++ compiler and valgrind; no GPU.

    python benchmarks/core.py [--out result.json] [--soak] [--build FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUFFERS = ("rotate", "fresh", "shuffled")

# Arguments of the program, nodes, the most instructions, and whether that is per node.
CASES: list[tuple[tuple[str, ...], int, int | None, bool]] = [
    *(
        (("append", str(nodes), buffers), nodes, 700, True)
        for nodes in (100, 1000)
        for buffers in BUFFERS
    ),
    *((("cut", "1000", buffers), 1000, None, True) for buffers in BUFFERS),
    *((("moving", str(nodes), "fresh"), nodes, None, True) for nodes in (100, 1000)),
    *((("program", "1000", buffers), 1000, 20_000, False) for buffers in ("3", "1000")),
    *((("moved", "1000", buffers), 1000, None, True) for buffers in ("3", "1000")),
]


def build(folder: Path) -> Path:
    """Configures and builds a release; returns the program."""
    subprocess.run(
        [
            *("cmake", "-S", ROOT, "-B", folder, "--log-level=WARNING"),
            *("-DCMAKE_BUILD_TYPE=Release", "-DJGE_BUILD_BENCHMARKS=ON", "-DJGE_BUILD_PYTHON=OFF"),
            f"-DPython_EXECUTABLE={sys.executable}",
        ],
        check=True,
        stdout=sys.stderr,
    )
    subprocess.run(
        ["cmake", "--build", folder, "--target", "jge_bench_core", "--parallel"],
        check=True,
        stdout=sys.stderr,
    )
    return folder / "benchmarks" / "core" / "jge_bench_core"


def instructions(program: Path, words: tuple[str, ...]) -> int:
    """Instructions inside the function measured() of one run."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "callgrind.out")
        done = subprocess.run(
            [
                *("valgrind", "--tool=callgrind", "--toggle-collect=measured"),
                f"--callgrind-out-file={out}",
                str(program),
                *words,
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"{program.name} {' '.join(words)} failed:\n{done.stderr}")
        found = re.search(r"^totals: (\d+)$", out.read_text(), re.MULTILINE)
    if not found:
        raise SystemExit(f"callgrind counted nothing for {' '.join(words)}")
    return int(found[1])


def version(*command: str) -> str:
    """The first line of a tool's version."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[0]


def measure(program: Path) -> tuple[dict[str, Any], bool]:
    """Prints and returns the counts of all cases, and whether one exceeds its limit."""
    results: dict[str, Any] = {}
    missed = False
    print(f"{'case':24} {'instructions':>12} {'per node':>9} {'at most':>14}")
    for words, nodes, most, per_node in CASES:
        count = instructions(program, words)
        name = " ".join(words)
        missed |= most is not None and count > most * (nodes if per_node else 1)
        bar = "" if most is None else f"{most} {'per node' if per_node else 'in all'}"
        print(f"{name:24} {count:12} {count / nodes:9.1f} {bar:>14}")
        results[name] = {"instructions": count, "per_node": count / nodes, "at_most": bar or None}
    return results, missed


def main() -> None:
    """Prints the table; exits with 1 if a case exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    parser.add_argument("--soak", action="store_true", help="only make a million warm runs")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "bench-core")
    options = parser.parse_args()

    program = build(options.build)
    if options.soak:
        raise SystemExit(subprocess.run([program, "soak", "1000000"]).returncode)

    results, missed = measure(program)
    if options.out:
        result = {
            "benchmark": "instructions of one warm call of the core, driver excluded",
            "environment": {
                "machine": platform.machine(),
                "compiler": version(os.environ.get("CXX", "c++"), "--version"),
                "valgrind": version("valgrind", "--version"),
            },
            "results": results,
        }
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    raise SystemExit(int(missed))


if __name__ == "__main__":
    main()

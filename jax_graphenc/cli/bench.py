"""``bench``: times launches here, in a few seconds."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import jax_graphenc as jge
from jax_graphenc.cli.info import devices, versions
from jax_graphenc.cli.ways import Way, chains_and_loops, measure
from jax_graphenc.statistics import table


def add_parser(subparsers: Any) -> None:
    """Adds the command's parser."""
    parser = subparsers.add_parser(
        "bench",
        help="times lone kernels, chains and loops, in jax.jit and as regions",
        description="Times calls of jitted functions of small kernels, from the call to its "
        "result. The ways take turns, so that disturbances affect all equally.",
    )
    parser.add_argument("--kernels", type=_count, default=50, help="in a chain (%(default)s)")
    parser.add_argument("--rounds", type=_count, default=100, help="of all ways (%(default)s)")
    parser.add_argument("--json", type=_file, metavar="FILE", help="where to write the results to")
    parser.set_defaults(run=run, parser=parser)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: an integer from 2 on is expected")
    return int(text)


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: a file in an existing folder is expected")
    return path


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints a table and writes a file."""
    if not devices():
        return _refuse("JAX has no device here")
    ways = chains_and_loops(arguments.kernels)
    try:
        seconds = measure(ways, arguments.rounds)
    except jge.CompilerNotFoundError as error:
        return _refuse(str(error))
    results = [_summary(way, values) for way, values in zip(ways, seconds, strict=True)]
    device = jge.device_info()
    print(str(device).partition("\n")[0])
    print(f"median of {arguments.rounds} calls, and the quartiles; in microseconds\n")
    print(_table(results))
    if arguments.json is not None:
        report = {"versions": versions(), "device": asdict(device), "results": results}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _refuse(reason: str) -> int:
    print(f"{reason}; `python -m jax_graphenc doctor` says more", file=sys.stderr)
    return 1


def _summary(way: Way, seconds: list[float]) -> dict[str, Any]:
    least, low, median, high, most = map(float, 1e6 * np.percentile(seconds, (0, 25, 50, 75, 100)))
    return {
        "what": way.what,
        "how": way.how,
        "kernels": way.steps,
        "median_us": median,
        "quartiles_us": [low, high],
        "least_us": least,
        "most_us": most,
        "calls": len(seconds),
    }


def _table(results: list[dict[str, Any]]) -> str:
    rows = [["", "", "per call", "quartiles", "per kernel"]]
    last = ""
    for result in results:
        low, high = result["quartiles_us"]
        rows.append(
            [
                "" if result["what"] == last else result["what"],
                result["how"],
                f"{result['median_us']:.1f}",
                f"{low:.1f} - {high:.1f}",
                f"{result['median_us'] / result['kernels']:.2f}",
            ]
        )
        last = result["what"]
    return table(rows, names=2)

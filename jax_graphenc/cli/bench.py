"""``bench``: what launching kernels costs here, in a few seconds."""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge
from jax_graphenc.base.timing import alternate
from jax_graphenc.cli.console import progress
from jax_graphenc.cli.info import devices, versions
from jax_graphenc.statistics import table

# Small, so that what it costs to launch shows; of integers, so that results are exact.
_ADD = r"""
extern "C" __global__ void add(const int* x, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + 1;
}
"""
_SIZE = 4096
_WARM_UP = 5

Function: TypeAlias = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True, slots=True)
class Way:
    """A way of doing something.

    Attributes:
        what: the same for ways that are compared.
        how: how this one does it.
        function: adds 1 to each element, ``steps`` times.
        steps: kernels in a call.
    """

    what: str
    how: str
    function: Function
    steps: int


def add_parser(subparsers: Any) -> None:
    """Adds the command's parser."""
    parser = subparsers.add_parser(
        "bench",
        help="times lone kernels, chains and loops, in jax.jit and as regions",
        description="Times calls of jitted functions of small kernels, from the call until the "
        "result is there. The ways take turns, so that what disturbs hits all alike.",
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
        raise argparse.ArgumentTypeError(f"{text!r}: a file in a folder that is there is expected")
    return path


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints a table and writes a file."""
    if not devices():
        return _refuse("JAX has no device here")
    ways = _ways(arguments.kernels)
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


def _ways(kernels: int) -> list[Way]:
    add = jge.cuda_kernel(
        _ADD,
        "add",
        out_shape=lambda x: x,
        grid=lambda x: jge.cdiv(x.size, 256),
        block=256,
        values={"n": lambda x: x.size},
    )

    def chain(x: jax.Array) -> jax.Array:
        for _ in range(kernels):
            x = add(x)
        return x

    def loop(x: jax.Array) -> jax.Array:
        out: jax.Array = jax.lax.fori_loop(0, kernels, lambda _, x: add(x), x)
        return out

    return [
        Way("one call", "jax.jit, x + 1", lambda x: x + 1, 1),
        Way("one call", "jax.jit, a kernel", add, 1),
        Way(f"chain of {kernels}", "jax.jit, one by one", chain, kernels),
        Way(f"chain of {kernels}", "jax.jit, jge.graph", jge.graph(chain), kernels),
        Way(f"loop of {kernels}", "jax.jit, one by one", loop, kernels),
        Way(f"loop of {kernels}", "jax.jit, jge.graph", jge.graph(loop), kernels),
    ]


def measure(ways: list[Way], rounds: int) -> list[list[float]]:
    """Times each way once per round, in an order that turns.

    Args:
        ways: What to time.
        rounds: How often.

    Returns:
        Seconds of each call, by way.

    Raises:
        RuntimeError: A way computes something else.
    """
    state = [jnp.zeros(_SIZE, jnp.int32) for _ in ways]
    with progress("compiling"):
        # What is passed on from call to call is donated, as a simulation's state would be.
        compiled = [
            jax.jit(way.function, donate_argnums=0).lower(x).compile()
            for way, x in zip(ways, state, strict=True)
        ]

    def once(i: int) -> float:
        start = time.perf_counter()
        state[i] = jax.block_until_ready(compiled[i](state[i]))
        return time.perf_counter() - start

    # Nothing is shown meanwhile: whatever draws would take its turns as well.
    runs = {i: functools.partial(once, i) for i in range(len(ways))}
    seconds = alternate(runs, rounds=rounds, warmup=_WARM_UP)
    for way, x in zip(ways, state, strict=True):
        if not (x == way.steps * (_WARM_UP + rounds)).all():
            raise RuntimeError(f"{way.what}, {way.how}: the result is wrong: {x}")
    return list(seconds.values())


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

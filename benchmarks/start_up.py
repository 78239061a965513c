"""Time from the start of a process to its first result: a kernel against a jax.numpy function.

Both in a jitted function, in turn, with JAX's persistent compilation cache and the cache of kernels
filled by earlier processes; the bar is 250 ms between their medians. On a busy machine compare
processor time instead.

    python benchmarks/start_up.py [--out result.json] [--rounds 10]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from records import environment, summary, write
from work import ADD

from jax_graphenc.base.timing import alternate

BEGIN = r"""
import jax
import jax.numpy as jnp
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
"""
WAYS = {
    "jax.numpy": """
@jax.jit
def f(x):
    return x + 1.0
""",
    "jax_graphenc": f"""
import jax_graphenc as jge
kernel = jge.cuda_kernel(
    r'''{ADD}''',
    "add",
    out_shape=lambda x, **_: x,
    grid=lambda x, **_: jge.cdiv(x.size, 256),
    block=256,
)

@jax.jit
def f(x):
    return kernel(x, a=1.0, n=x.size)
""",
}
# Linux's monotonic clock is shared by all processes.
END = r"""
y = jax.block_until_ready(f(jnp.zeros(4096)))
times = {"clock": time.monotonic(), "processor": time.process_time()}
assert y[7] == 1
missed = events.count("/jax/compilation_cache/cache_misses")
found = events.count("/jax/compilation_cache/cache_hits")
print(json.dumps({**times, "missed": missed, "found": found, "compiled": COMPILED}))
"""


def first_result(way: str, variables: dict[str, str]) -> dict[str, float]:
    """One process: seconds to its first result, and counts of compilations."""
    compiled = "jge.stats()['compiled']" if way == "jax_graphenc" else "0"
    code = f"import json, time\n{BEGIN}{WAYS[way]}{END.replace('COMPILED', compiled)}"
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, stdout=subprocess.PIPE, text=True, check=True
    )
    told = json.loads(done.stdout)
    return {**told, "clock": told["clock"] - begin}


def caches_in(folder: str) -> dict[str, str]:
    """The environment of a process with all of its caches in a folder."""
    return {
        **os.environ,
        "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_GRAPHENC_CACHE_DIR": f"{folder}/kernels",
        # Python's bytecode too, even of packages in folders of another owner.
        "PYTHONPYCACHEPREFIX": f"{folder}/python",
        "PYTHONDONTWRITEBYTECODE": "",
    }


def measure(rounds: int) -> dict[str, Any]:
    """The times of both ways with filled caches, and of the first process with empty ones."""
    told: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        variables = caches_in(folder)
        cold = {way: first_result(way, variables) for way in WAYS}

        def run(way: str) -> float:
            told[way].append(first_result(way, variables))
            return 1e3 * told[way][-1]["clock"]

        ways = {way: lambda way=way: run(way) for way in WAYS}
        clock = alternate(ways, rounds=rounds, warmup=1)
    for way, processes in told.items():
        assert all(p["compiled"] == p["missed"] == 0 < p["found"] for p in processes), (way, told)
    results = {f"{way} ms": summary(values) for way, values in clock.items()}
    for way, processes in told.items():
        values = [1e3 * p["processor"] for p in processes[-rounds:]]
        results[f"{way} processor ms"] = summary(values)

    def over(what: str) -> float:
        ours, theirs = (results[f"{way} {what}"]["median"] for way in ("jax_graphenc", "jax.numpy"))
        return round(ours - theirs, 1)

    return {
        "results": results,
        "cold ms": {way: round(1e3 * one["clock"], 1) for way, one in cold.items()},
        "ms over jax.numpy": over("ms"),
        "processor ms over jax.numpy": over("processor ms"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    measured = measure(options.rounds)
    write(
        options.out,
        {
            "benchmark": "start-up of a second process",
            "environment": environment(),
            **measured,
            "bar": 250.0,
        },
    )


if __name__ == "__main__":
    main()

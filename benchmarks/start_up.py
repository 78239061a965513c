"""Time from the start of a process to its first result: a kernel over a jax.numpy function.

Both in a jitted function, with JAX's persistent compilation cache and the cache of kernels filled
by processes before. Two ways in turn; the bar is 250 ms between their medians. Where other work
runs on the machine, the seconds of the processor say more than those of the clock.

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

import harness

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
    r'''{harness.ADD}''',
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
# Linux's monotonic clock is the same in all processes.
END = r"""
y = jax.block_until_ready(f(jnp.zeros(4096)))
times = {"clock": time.monotonic(), "processor": time.process_time()}
assert y[7] == 1
missed = events.count("/jax/compilation_cache/cache_misses")
found = events.count("/jax/compilation_cache/cache_hits")
print(json.dumps({**times, "missed": missed, "found": found, "compiled": COMPILED}))
"""


def first_result(way: str, environment: dict[str, str]) -> dict[str, float]:
    """One process: seconds to its first result, and what it compiled."""
    compiled = "jge.stats()['compiled']" if way == "jax_graphenc" else "0"
    code = f"import json, time\n{BEGIN}{WAYS[way]}{END.replace('COMPILED', compiled)}"
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    told = json.loads(done.stdout)
    return {**told, "clock": told["clock"] - begin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "JAX_GRAPHENC_CACHE_DIR": f"{folder}/kernels",
            # Python's own cache as well, wherever the packages lie and whoever owns them.
            "PYTHONPYCACHEPREFIX": f"{folder}/python",
            "PYTHONDONTWRITEBYTECODE": "",
        }
        cold = {way: first_result(way, environment) for way in WAYS}
        told: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}

        def run(way: str) -> float:
            told[way].append(first_result(way, environment))
            return 1e3 * told[way][-1]["clock"]

        ways = {way: lambda way=way: run(way) for way in WAYS}
        clock = alternate(ways, rounds=options.rounds, warmup=1)
    for way, processes in told.items():
        assert all(p["compiled"] == p["missed"] == 0 < p["found"] for p in processes), (way, told)
    results = {f"{way} ms": harness.summary(values) for way, values in clock.items()}
    for way, processes in told.items():
        values = [1e3 * p["processor"] for p in processes[-options.rounds :]]
        results[f"{way} processor ms"] = harness.summary(values)

    def over(what: str) -> float:
        ours, theirs = (results[f"{way} {what}"]["median"] for way in ("jax_graphenc", "jax.numpy"))
        return round(ours - theirs, 1)

    harness.write(
        options.out,
        {
            "benchmark": "start-up of a second process",
            "environment": harness.environment(),
            "results": results,
            "cold ms": {way: round(1e3 * one["clock"], 1) for way, one in cold.items()},
            "ms over jax.numpy": over("ms"),
            "processor ms over jax.numpy": over("processor ms"),
            "bar": 250.0,
        },
    )


if __name__ == "__main__":
    main()

"""Two GPUs in one process: does work on one slow the other down, and does a long run stay flat?

A region of 1000 small kernels per device, first on one device, then on both: by one jitted call
that is sharded over them, and by two threads with a device each. Then 100,000 calls of a small
sharded region. Needs two GPUs.

    python benchmarks/two_gpus.py [--out result.json]
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jax_graphenc as jge

SIZE = 4096
KERNELS = 1000
CALLS = 20  # of each thread, in one measurement
STEPS = 100_000


def chain(count: int) -> Callable[[Any], Any]:
    """x + count, by kernels that add 1."""
    add = jge.cuda_kernel(
        harness.ADD,
        "add",
        out_shape=lambda x, **_: x,
        grid=lambda x, **_: jge.cdiv(x.size, 256),
        block=256,
    )

    @jge.graph
    def run(x: Any) -> Any:
        for _ in range(count):
            x = add(x, a=1.0, n=x.size)
        return x

    return run


def resident_mb() -> float:
    """Resident memory of this process, in MB (10^6 bytes)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def sharded(function: Callable[[Any], Any], devices: list[Any]) -> tuple[Any, Any]:
    """A function of one row per device, and such rows."""
    mesh = jax.make_mesh((len(devices),), ("d",), axis_types=(AxisType.Auto,), devices=devices)
    spec = PartitionSpec("d")
    mapped = jax.shard_map(lambda x: function(x[0])[None], mesh=mesh, in_specs=spec, out_specs=spec)
    rows = jax.device_put(jnp.zeros((len(devices), SIZE)), NamedSharding(mesh, spec))
    return jax.jit(mapped, donate_argnums=0), rows


def measure_shards(devices: list[Any], rounds: int) -> dict[str, Any]:
    """Wall time of a call on one device, and of one that is sharded over both."""
    calls, ways = {}, {}
    for name, on in (("one device", devices[:1]), ("two devices", devices)):
        calls[name] = list(sharded(chain(KERNELS), on))

        def one(name: str = name) -> float:
            seconds, calls[name][1] = harness.wall_seconds(*calls[name])
            return 1e6 * seconds

        ways[f"{name}: wall us"] = one
    measured = harness.alternate(ways, rounds=rounds)
    for _, rows in calls.values():
        np.testing.assert_array_equal(rows, np.full(rows.shape, KERNELS * (rounds + 5)))
    return {name: harness.summary(values) for name, values in measured.items()}


def measure_threads(devices: list[Any], rounds: int) -> dict[str, Any]:
    """Host and wall time of calls by a thread, alone and beside another on the other device."""
    functions = [jax.jit(chain(KERNELS), donate_argnums=0) for _ in devices]
    arrays = [jax.device_put(jnp.zeros(SIZE), device) for device in devices]
    done = [0] * len(devices)

    def work(k: int, host: list[float]) -> None:
        for _ in range(CALLS):
            seconds, arrays[k] = harness.dispatch_seconds(functions[k], arrays[k])
            host.append(1e6 * seconds)
            done[k] += 1

    def together(which: list[int]) -> tuple[float, list[float]]:
        host: list[list[float]] = [[] for _ in which]
        threads = [threading.Thread(target=work, args=(k, host[i])) for i, k in enumerate(which)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall = 1e6 * (time.perf_counter() - start) / CALLS
        return wall, host[0]

    together([0])
    together([1])
    results: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, which in (("alone", [0]), ("beside another", [0, 1])):
            wall, host = together(which)
            results.setdefault(f"{name}: wall us per call", []).append(wall)
            results.setdefault(f"{name}: host us per call", []).extend(host)
    for k, array in enumerate(arrays):
        np.testing.assert_array_equal(array, np.full(SIZE, KERNELS * done[k]))
    return {name: harness.summary(values) for name, values in results.items()}


def long_run(devices: list[Any], steps: int) -> dict[str, Any]:
    """Calls a small sharded region very often; memory after a tenth and at the end."""
    function, rows = sharded(chain(10), devices)
    seen = {}
    start = time.perf_counter()
    for step in range(1, steps + 1):
        rows = function(rows)
        if step in (steps // 10, steps):
            rows.block_until_ready()
            stats = jge.stats()
            seen[step] = {
                "resident MB": resident_mb(),
                **{name: stats[name] for name in ("instantiations", "encoders", "programs")},
            }
    # Beyond 2^24, a float32 no longer counts by ones.
    assert 10 * steps < 2**24
    np.testing.assert_array_equal(rows, np.full(rows.shape, 10 * steps))
    return {"steps": steps, "seconds": time.perf_counter() - start, "seen": seen}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    devices = jax.devices()[:2]
    if len(devices) < 2:
        sys.exit("fewer than two devices here: this benchmark measures them side by side")
    shards = measure_shards(devices, options.rounds)
    threads = measure_threads(devices, max(options.rounds // CALLS, 3))
    run = long_run(devices, options.steps)
    ratio = shards["two devices: wall us"]["median"] / shards["one device: wall us"]["median"]
    host = (
        threads["beside another: host us per call"]["median"]
        / threads["alone: host us per call"]["median"]
    )
    harness.write(
        options.out,
        {
            "benchmark": "two devices in one process",
            "kernels per device and call": KERNELS,
            "environment": harness.environment(),
            "shards": shards,
            "threads": threads,
            "long run": run,
            "two shards over one, wall": round(ratio, 3),
            "bar": 1.15,
            "host time beside another thread over alone": round(host, 3),
        },
    )


if __name__ == "__main__":
    main()

"""Two devices in one process: interference between them, and the memory of a long run.

A region of 1000 small kernels per device, on one device and on both: by one sharded jitted call,
and by two threads with a device each. Then 100,000 calls of a small sharded region.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from harness import Setup
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from records import Row, row
from ways import AbsentError, JaxWay
from work import ADD, SIZE

import jax_graphenc as jge
from jax_graphenc.base.timing import alternate

CALLS = 20  # of each thread, in one measurement


def chain(count: int) -> Callable[[Any], Any]:
    """x + count, by kernels that add 1, for any shape."""
    add = jge.cuda_kernel(
        ADD,
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
    """A function of one row per device, and the rows."""
    mesh = jax.make_mesh((len(devices),), ("d",), axis_types=(AxisType.Auto,), devices=devices)
    spec = PartitionSpec("d")
    mapped = jax.shard_map(lambda x: function(x[0])[None], mesh=mesh, in_specs=spec, out_specs=spec)
    rows = jax.device_put(jnp.zeros((len(devices), SIZE)), NamedSharding(mesh, spec))
    return jax.jit(mapped, donate_argnums=0), rows


def shards(devices: list[Any], kernels: int, rounds: int) -> list[Row]:
    """A call on one device, and one that is sharded over both."""
    ways = {
        name: JaxWay(*sharded(chain(kernels), on))
        for name, on in (("one device", devices[:1]), ("two devices", devices))
    }
    walls = {name: way.wall for name, way in ways.items()}
    measured = alternate(walls, rounds=rounds, warmup=5)
    for way in ways.values():
        np.testing.assert_array_equal(way.result(), np.full(way.x.shape, kernels * way.calls))
    case = {"work": "sharded call", "kernels": kernels}
    return [row(case, name, "wall", values, "us") for name, values in measured.items()]


def dispatch_seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Host time of one call, without waiting for the device, and its result; waits after it."""
    start = time.perf_counter()
    out = function(*arguments)
    elapsed = time.perf_counter() - start
    return elapsed, jax.block_until_ready(out)


def threads(devices: list[Any], kernels: int, rounds: int) -> list[Row]:
    """Calls by a thread, alone and beside another on the other device."""
    functions = [jax.jit(chain(kernels), donate_argnums=0) for _ in devices]
    arrays = [jax.device_put(jnp.zeros(SIZE), device) for device in devices]
    done = [0] * len(devices)

    def work(k: int, host: list[float]) -> None:
        for _ in range(CALLS):
            seconds, arrays[k] = dispatch_seconds(functions[k], arrays[k])
            host.append(1e6 * seconds)
            done[k] += 1

    def together(which: list[int]) -> tuple[float, list[float]]:
        host: list[list[float]] = [[] for _ in which]
        running = [threading.Thread(target=work, args=(k, host[i])) for i, k in enumerate(which)]
        start = time.perf_counter()
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        wall = 1e6 * (time.perf_counter() - start) / CALLS
        return wall, host[0]

    together([0])
    together([1])
    values: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, which in (("alone", [0]), ("beside another", [0, 1])):
            wall, host = together(which)
            values.setdefault((name, "wall"), []).append(wall)
            values.setdefault((name, "host"), []).extend(host)
    for k, array in enumerate(arrays):
        np.testing.assert_array_equal(array, np.full(SIZE, kernels * done[k]))
    case = {"work": "call by a thread", "kernels": kernels}
    return [row(case, *name, each, "us") for name, each in values.items()]


def long_run(devices: list[Any], steps: int) -> list[Row]:
    """Many calls of a small sharded region; memory after a tenth and at the end."""
    function, rows = sharded(chain(10), devices)
    seen = []
    start = time.perf_counter()
    for step in range(1, steps + 1):
        rows = function(rows)
        if step in (steps // 10, steps):
            rows.block_until_ready()
            counts = {
                name: jge.stats()[name] for name in ("instantiations", "encoders", "programs")
            }
            seconds = time.perf_counter() - start
            case = {"work": "long run", "way": "jge.graph", "calls": step, "seconds": seconds}
            seen.append({**case, "resident MB": resident_mb(), **counts})
    # Beyond 2^24, a float32 no longer counts by ones.
    assert 10 * steps < 2**24
    np.testing.assert_array_equal(rows, np.full(rows.shape, 10 * steps))
    return seen


def run(setup: Setup) -> Iterator[Row]:
    devices = jax.devices()[:2]
    if len(devices) < 2:
        raise AbsentError("fewer than two devices here")
    kernels = 3 if setup.quick else 1000
    rounds = 2 if setup.quick else 100
    yield from shards(devices, kernels, rounds)
    yield from threads(devices, kernels, max(rounds // CALLS, 3))
    yield from long_run(devices, 20 if setup.quick else 100_000)

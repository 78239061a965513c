"""What the benchmarks share: alternating measurements, and the machine they were made on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

import jax_graphenc as jge
from jax_graphenc.compiler import Source, compile_source

# The kernel that is measured: small, so that what it costs to launch shows.
ADD = r"""
extern "C" __global__ void add(const float* x, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + a;
}
"""


def cubin(source: str, symbol: str) -> bytes:
    """An ``extern "C"`` kernel, compiled for this machine's GPU."""
    major, minor = jge.device_info().compute_capability
    code = Source(source, f"<{symbol}>")
    return compile_source(code, (symbol,), f"sm_{major}{minor}", None).data


def add_cubin() -> bytes:
    """``ADD``, compiled for this machine's GPU."""
    return cubin(ADD, "add")


def environment() -> dict[str, Any]:
    """The machine and the versions that a result belongs to."""
    info = jge.device_info()
    packages = ("jax", "jaxlib", "jax_graphenc", "cuda-bindings", "numpy", "warp-lang")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": info.name,
        "compute_capability": info.compute_capability,
        "driver": info.driver_version,
        "nvrtc": info.compiler_version,
        "python": platform.python_version(),
        "backend": jax.default_backend(),
        "commit": os.environ.get("COMMIT") or _commit(),
        **{name: _version(name) for name in packages},
    }


def _commit() -> str | None:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def alternate(
    ways: Mapping[str, Callable[[], float]], *, rounds: int, warmup: int = 5
) -> dict[str, list[float]]:
    """Measures each way once per round, in an order that turns, so that drift hits all alike."""
    names = list(ways)
    measured: dict[str, list[float]] = {name: [] for name in names}
    for i in range(-warmup, rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            value = ways[name]()
            if i >= 0:
                measured[name].append(value)
    return measured


def summary(values: list[float]) -> dict[str, float]:
    """Median, quartiles, least and largest."""
    low, median, high = statistics.quantiles(values, n=4)
    return {
        "median": median,
        "quartile_1": low,
        "quartile_3": high,
        "min": min(values),
        "max": max(values),
        "n": len(values),
    }


def dispatch_seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Host time of one call, without waiting for the device, and its result; waits after it."""
    start = time.perf_counter()
    out = function(*arguments)
    elapsed = time.perf_counter() - start
    return elapsed, jax.block_until_ready(out)


def wall_seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Time of one call until its result is there, and the result."""
    start = time.perf_counter()
    out = jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start, out


def write(path: Path | None, result: Mapping[str, Any]) -> None:
    """Prints a result, and writes it as JSON where a path is given."""
    text = json.dumps(result, indent=2)
    print(text)
    if path is not None:
        path.write_text(text + "\n")

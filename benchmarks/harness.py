"""What the benchmarks share: ways to do a work, alternating measurements, the machine's name."""

from __future__ import annotations

import collections
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jax_graphenc as jge
from jax_graphenc.base.timing import alternate

# The kernel that is measured: small, so that what it costs to launch shows.
ADD = r"""
extern "C" __global__ void add(const float* x, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + a;
}
"""

QUEUED = 10  # calls in a row, so that the host's part is hidden
SLOW_US = 20_000  # whoever takes longer for one call is asked for its wall time alone

# One measured case: what it was, who did it, what was measured, and the summary of the values.
Row = dict[str, Any]


class AbsentError(Exception):
    """A peer or a part cannot run here; its text says why."""


class Way:
    """One way to do a work: a call enqueues it once. Its methods measure what a call takes.

    Attributes:
        kinds: what is measured: names of the methods below.
        calls: how many there were, to know what the result must be.
    """

    kinds: tuple[str, ...] = ("host", "wall", "queued")
    calls: int = 0

    def call(self) -> None:
        """Enqueues the work."""
        raise NotImplementedError

    def wait(self) -> None:
        """Waits until all calls are done."""
        raise NotImplementedError

    def result(self) -> np.ndarray:
        """What the last call left."""
        raise NotImplementedError

    def host(self) -> float:
        """Microseconds until a call is dispatched that follows another at once.

        A first call after waiting for the device also wakes the processor and fills its caches,
        which took several times as long on the machine that this was written for.
        """
        self.call()
        start = time.perf_counter()
        self.call()
        elapsed = time.perf_counter() - start
        self.wait()
        return 1e6 * elapsed

    def wall(self) -> float:
        """Microseconds until a call's result is there."""
        start = time.perf_counter()
        self.call()
        self.wait()
        return 1e6 * (time.perf_counter() - start)

    def queued(self) -> float:
        """Microseconds per call of several in a row."""
        start = time.perf_counter()
        for _ in range(QUEUED):
            self.call()
        self.wait()
        return 1e6 * (time.perf_counter() - start) / QUEUED

    def patched(self) -> float:
        """Nodes of our executable graphs that one call had to tell anew."""
        before = jge.stats()["nodes_patched"]
        self.call()
        self.wait()
        return float(jge.stats()["nodes_patched"] - before)


@dataclass
class JaxWay(Way):
    """A jitted function of one array.

    Attributes:
        function: takes and returns an array.
        x: the argument of the first call.
        feed: whether a result is the next call's argument.
        keep: how many arguments stay alive after their call, so that addresses move.
    """

    function: Callable[[jax.Array], jax.Array]
    x: jax.Array
    feed: bool = True
    keep: int = 0
    kinds: tuple[str, ...] = Way.kinds
    calls: int = 0
    _out: jax.Array | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._kept: collections.deque[jax.Array] = collections.deque(maxlen=self.keep)

    def call(self) -> None:
        self.calls += 1
        self._kept.append(self.x)
        self._out = self.function(self.x)
        if self.feed:
            self.x = self._out

    def wait(self) -> None:
        jax.block_until_ready(self._out)

    def result(self) -> np.ndarray:
        return np.asarray(self._out)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median, quartiles, mean, least and largest, to five digits."""
    low, median, high = np.percentile(values, (25, 50, 75))
    found = {
        "median": median,
        "quartile_1": low,
        "quartile_3": high,
        "mean": np.mean(values),
        "min": min(values),
        "max": max(values),
    }
    return {**{name: float(f"{value:.5g}") for name, value in found.items()}, "n": len(values)}


def row(case: Mapping[str, Any], way: str, kind: str, values: Sequence[float], unit: str) -> Row:
    """One line of the result."""
    return {**case, "way": way, "kind": kind, "unit": unit, **summary(values)}


@dataclass
class Setup:
    """What a part is given.

    Attributes:
        peers: by name; the package's own, "jge.graph" and "cuda_kernel", are always there.
        quick: whether this is only to show that it runs.
        gpu: whether there is one.
        left_out: what a peer could not do, and why.
    """

    peers: Mapping[str, Any]
    quick: bool
    gpu: bool
    left_out: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 30

    def ways(self, work: Any) -> dict[str, Way]:
        """Whoever can do a work; a peer that fails at it is left out, and said so."""
        found: dict[str, Way] = {}
        for name, peer in self.peers.items():
            try:
                made = peer.ways(work)
            except Exception as error:
                self.leave_out(work, name, error)
                continue
            for way, each in made.items():
                try:
                    each.wall()
                except Exception as error:
                    self.leave_out(work, way, error)
                else:
                    found[way] = each
        return found

    def measure(self, work: Any, ways: Mapping[str, Way] | None = None) -> list[Row]:
        """A row for each way and kind, of results that were right."""
        found = dict(self.ways(work) if ways is None else ways)
        runs: dict[tuple[str, str], Callable[[], float]] = {}
        for name, way in found.items():
            slow = min(way.wall() for _ in range(3)) > SLOW_US
            kinds = [kind for kind in way.kinds if kind == "wall" or not slow]
            runs.update({(name, kind): getattr(way, kind) for kind in kinds})
        values = alternate(runs, rounds=self.rounds, warmup=1 if self.quick else 5)
        for name, way in list(found.items()):
            want = np.broadcast_to(np.asarray(work.expected(way.calls), np.float32), work.shape)
            try:
                np.testing.assert_array_equal(way.result(), want, err_msg=f"{name}: {work}")
            except AssertionError as error:
                if ways is not None:
                    raise
                self.leave_out(work, name, error)
                del found[name]
        return [
            row(work.case, name, kind, each, "nodes" if kind == "patched" else "us")
            for (name, kind), each in values.items()
            if name in found
        ]

    def leave_out(self, work: Any, name: str, error: Exception) -> None:
        """Notes what a peer could not do; raises the error again where it is the package's own."""
        if getattr(self.peers.get(name), "ours", False):
            raise error
        reason = f"{type(error).__name__}: {str(error).strip()}"
        self.left_out.append({**work.case, "way": name, "reason": reason[:500]})
        print(f"{name} was left out of {work}: {reason}")


def environment() -> dict[str, Any]:
    """The machine and the versions that a result belongs to."""
    info = jge.device_info()
    packages = ("jax", "jaxlib", "jax_graphenc", "cuda-bindings", "numpy", "warp-lang")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": info.name,
        "compute_capability": info.compute_capability,
        "driver": info.driver_version,
        "nvrtc": info.compiler_version,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "backend": jax.default_backend(),
        "commit": os.environ.get("COMMIT") or _commit(),
        **{name: _version(name) for name in packages},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


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


def dispatch_seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Host time of one call, without waiting for the device, and its result; waits after it."""
    start = time.perf_counter()
    out = function(*arguments)
    elapsed = time.perf_counter() - start
    return elapsed, jax.block_until_ready(out)


def as_json(result: Mapping[str, Any]) -> str:
    """With a row in a line."""
    text = json.dumps(result, indent=1)
    return re.sub(r"\{[^{}\[\]]*\}", lambda row: " ".join(row[0].split()), text)


def write(path: Path | None, result: Mapping[str, Any]) -> None:
    """Prints a result, and writes it as JSON where a path is given."""
    text = as_json(result)
    print(text)
    if path is not None:
        path.write_text(text + "\n")

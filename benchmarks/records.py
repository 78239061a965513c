"""The rows of a result, and the machine that it belongs to."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jax_graphenc as jge

# A measured case: the work, the way, the measure, and a summary of the values.
Row = dict[str, Any]


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
    """A row of the result."""
    return {**case, "way": way, "kind": kind, "unit": unit, **summary(values)}


def environment() -> dict[str, Any]:
    """The machine and the versions."""
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


def as_json(result: Mapping[str, Any]) -> str:
    """A result as JSON, with one line per row."""
    text = json.dumps(result, indent=1)
    return re.sub(r"\{[^{}\[\]]*\}", lambda row: " ".join(row[0].split()), text)


def write(path: Path | None, result: Mapping[str, Any]) -> None:
    """Prints a result as JSON, and writes it to a path if there is one."""
    text = as_json(result)
    print(text)
    if path is not None:
        path.write_text(text + "\n")

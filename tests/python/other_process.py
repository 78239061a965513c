"""other_process.py: runs a function of a test module in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_here(code: str, *, timeout: int = 300, **environment: str) -> str:
    """Runs code that may import this folder's modules, and returns what it printed."""
    done = _run(code, timeout, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_on_cpu_devices(code: str, count: int, *, timeout: int = 300) -> None:
    """Runs such code where JAX has so many CPU devices."""
    done = start_on_cpu_devices(code, count, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr


def start_on_cpu_devices(
    code: str, count: int, *, timeout: int = 300
) -> subprocess.CompletedProcess[str]:
    """The same, for a caller that checks the result by itself."""
    flags = f"--xla_force_host_platform_device_count={count}"
    return _run(code, timeout, {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags})


def _run(code: str, timeout: int, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )

"""Parts of the benchmark in a process of their own, since XLA reads its flags once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RUN = Path(__file__).with_name("run.py")


def run_apart(
    parts: Sequence[str], flags: str, quick: bool, peers: Sequence[str] = ()
) -> dict[str, Any]:
    """The result of parts in a process with further XLA flags.

    Args:
        parts: their names.
        flags: as ``XLA_FLAGS`` has them, after those of this process.
        quick: whether sizes are tiny.
        peers: the only ones to measure; none for all.

    Raises:
        RuntimeError: if the process fails; it has the end of what the process said.
    """
    variables = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # this process has most of the memory
    }
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        command = [sys.executable, str(RUN), *parts, "--out", str(out)]
        command += ["--quick"] * quick + (["--peers", *peers] if peers else [])
        done = subprocess.run(
            command, env=variables, check=False, capture_output=True, text=True, timeout=900
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(parts)} with {flags!r} failed: {done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(out.read_text())
        return found

"""Compilers as processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

_TIMEOUT_S = 600  # A compiler that comes from PyPI builds its own runtime first.


def run(arguments: list[str], cwd: Path | None) -> tuple[str, int]:
    """Runs a compiler with all its children; returns its output and status.

    Raises:
        OSError: It cannot be run.
        subprocess.TimeoutExpired: It took too long, and was killed.
    """
    # Messages in English, and no date from __DATE__ in an image.
    environment = os.environ | {"LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    if cwd is not None:
        environment["TMPDIR"] = str(cwd)  # known to be writable
    with subprocess.Popen(
        arguments,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=_TIMEOUT_S)
        except BaseException:
            # The driver's children would otherwise compile on.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return output.decode(errors="replace"), process.returncode

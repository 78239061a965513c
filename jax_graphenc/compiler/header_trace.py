"""Which headers NVRTC reads, out of the trace of its times: it has no option that lists them."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from jax_graphenc.compiler.nvrtc_library import check, load


def traced_headers(text: str, name: str, options: Sequence[str]) -> list[str] | None:
    """Names the headers that NVRTC reads for a text, by its first pass alone.

    Args:
        text: What NVRTC compiles; it must have compiled.
        name: What NVRTC is told that it is called.
        options: NVRTC's other options.

    Returns:
        The names, or None if this NVRTC cannot tell.
    """
    trace: list[bytes] = []
    try:
        with tempfile.TemporaryDirectory(prefix="jax_graphenc_") as folder:
            # NVRTC aborts the process where it cannot write a trace, so it writes it to memory. A
            # compilation that fails leaves a trace open that later ones of the thread stumble over,
            # so it has a thread of its own.
            thread = threading.Thread(
                target=lambda: trace.append(_trace(text, name, options, Path(folder)))
            )
            thread.start()
            thread.join()
        events = json.loads(trace[0].decode(errors="surrogateescape"))["traceEvents"]
    except (OSError, IndexError, ValueError, KeyError):
        return None
    return [
        event["args"]["detail"] for event in events if event.get("name") == "Processing Header File"
    ]


def _trace(text: str, name: str, options: Sequence[str], folder: Path) -> bytes:
    nvrtc = load()
    with os.fdopen(os.memfd_create("jax_graphenc"), "rb") as file:
        # NVRTC adds the suffix.
        (folder / "trace.json").symlink_to(f"/proc/{os.getpid()}/fd/{file.fileno()}")
        program = check(nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], []))
        try:
            more = ("--fdevice-syntax-only", f"--fdevice-time-trace={folder / 'trace'}")
            given = [option.encode() for option in (*options, *more)]
            nvrtc.nvrtcCompileProgram(program, len(given), given)
        finally:
            nvrtc.nvrtcDestroyProgram(program)
        return file.read()

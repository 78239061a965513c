"""Host time of a kernel outside a region, against a bare FFI handler that launches the same kernel.

200 tiny kernels in one jitted call, with XLA's command buffers off.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness import Setup
from records import Row
from ways import AbsentError
from work import Chain

import jax_graphenc as jge

XLA_FLAGS = "--xla_gpu_enable_command_buffer="


def run(setup: Setup) -> Iterator[Row]:
    names = ("cuda_kernel", "FFI call")
    if setup.gpu and "FFI call" not in setup.peers:
        raise AbsentError("there is no bare FFI handler here to measure against")
    work = Chain(3 if setup.quick else 200)
    made = {name: setup.peers[name].ways(work) for name in names if name in setup.peers}
    ways = {name: each[name] for name, each in made.items()}
    before = jge.stats()
    rows = setup.measure(work, ways)
    after = jge.stats()
    launched = {name: after[name] - before[name] for name in ("captured_nodes", "direct_launches")}
    expected = {
        "captured_nodes": 0,
        "direct_launches": work.kernels * ways["cuda_kernel"].calls,
    }
    if launched != expected:
        raise RuntimeError(f"launched {launched}, not {expected}: are command buffers off?")
    for row in rows:
        yield {**row, "work": "lone kernels"}

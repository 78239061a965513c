"""The parts of the benchmark: each a module with ``run(setup)``, which yields rows.

A part with ``XLA_FLAGS`` runs in its own process, because XLA reads flags once.
"""

from __future__ import annotations

from parts import (
    chain,
    concurrency,
    first_call,
    lone_kernel,
    loops,
    threshold,
    tuned_xla,
    two_devices,
)

PARTS = {
    "chain": chain,
    "concurrency": concurrency,
    "loops": loops,
    "tuned_xla": tuned_xla,
    "first_call": first_call,
    "lone_kernel": lone_kernel,
    "threshold": threshold,
    "two_devices": two_devices,
}

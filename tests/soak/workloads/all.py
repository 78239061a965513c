"""all.py: every workload, with how often it is taken."""

from __future__ import annotations

import random

from workloads import (
    Checks,
    Workload,
    disturbances,
    encoders,
    faults,
    handlers,
    libraries,
    lifetimes,
    parameters,
    regions,
)

WORKLOADS: dict[Workload, float] = {}
for part in (regions, parameters, encoders, handlers, lifetimes, faults, disturbances, libraries):
    WORKLOADS |= part.WORKLOADS
ALONE: list[Workload] = libraries.ALONE


def again(step: str) -> Workload:
    """A workload that does one step, ``"name:seed"``, whatever its own seed is."""
    name, _, seed = step.partition(":")
    known = {workload.__name__: workload for workload in (*WORKLOADS, *ALONE)}

    def same(rng: random.Random) -> Checks:
        return known[name](random.Random(int(seed)))

    return same

"""Chains of small kernels: time per kernel against their number, and the host's time of a call.

Addresses repeat where every call is given the memory of the last one's result, and move where
results are kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness import Row, Setup
from work import Chain


def run(setup: Setup) -> Iterator[Row]:
    counts = (1, 3) if setup.quick else (1, 3, 10, 30, 100, 300, 1000)
    for count in counts:
        for moving in (False, True):
            yield from setup.measure(Chain(count, moving))

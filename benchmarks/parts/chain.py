"""Chains of small kernels: time per kernel against their number, and host time of a call.

Addresses repeat if every call reuses the memory of the last result, and move if results are kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness import Setup
from records import Row
from work import Chain


def run(setup: Setup) -> Iterator[Row]:
    counts = (1, 3) if setup.quick else (1, 3, 10, 30, 100, 300, 1000)
    for count in counts:
        for moving in (False, True):
            yield from setup.measure(Chain(count, moving))

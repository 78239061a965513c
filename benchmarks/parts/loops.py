"""Counted loops, which XLA runs step by step and a region unrolls."""

from __future__ import annotations

from collections.abc import Iterator

from harness import Setup
from records import Row
from work import Loop

# Iterations, and kernels in each.
SHAPES = ((10, 1), (50, 1), (200, 1), (500, 1), (200, 2), (200, 5), (200, 10))
QUICK = ((3, 1), (4, 1), (4, 2))


def run(setup: Setup) -> Iterator[Row]:
    for shape in QUICK if setup.quick else SHAPES:
        yield from setup.measure(Loop(*shape))

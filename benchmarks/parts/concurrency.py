"""Independent kernels of one block, 17 us each, which a GPU can run side by side."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from harness import Setup
from records import Row
from ways import JaxWay
from work import ROW, Batch, Independent, our_kernels

from jax_graphenc.base.timing import alternate

MICROSECONDS = 17.0


def repetitions(setup: Setup) -> int:
    """Repetitions for which ``spin`` takes MICROSECONDS on this device."""
    if setup.quick:
        return 100
    _, spin = our_kernels()
    few, many = 50_000, 250_000
    walls = {
        n: JaxWay(jax.jit(lambda x, n=n: spin(x, 1.0, n)), jnp.zeros(ROW), feed=False).wall
        for n in (few, many)
    }
    # Enough warm-up for the GPU's clock to rise.
    measured = alternate(walls, rounds=20, warmup=300)
    each = (statistics.median(measured[many]) - statistics.median(measured[few])) / (many - few)
    return max(1, round(MICROSECONDS / each))


def run(setup: Setup) -> Iterator[Row]:
    counts = (1, 3) if setup.quick else (1, 2, 4, 8, 16, 32, 64)
    n = repetitions(setup)
    for count in counts:
        yield from setup.measure(Independent(count, n))
    yield from setup.measure(Batch(counts[-1], n))

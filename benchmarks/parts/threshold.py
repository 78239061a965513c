"""The program size from which XLA's command buffers cost more than they save.

The same programs, captured by XLA and not, alone and beside operations of XLA's, which captures
only five or more in a row. The package's choice is ``custom_call.stays_out``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
from harness import Setup
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from records import Row
from ways import JaxWay
from work import Chain, Function, our_kernels

import jax_graphenc as jge
from jax_graphenc.devices.target import target_of
from jax_graphenc.primitives.derived import trace
from jax_graphenc.primitives.program import program_p
from jax_graphenc.regions.rewrite import Rewriter


def forced(function: Function, work: Chain, uncaptured: bool, gpu: bool) -> Function:
    """A region as one program that XLA captures, or does not, whatever the package would choose."""
    jaxpr = trace(function, work.argument()).jaxpr
    new = Rewriter("chain", target_of("cuda" if gpu else "cpu")).rewrite(jaxpr).jaxpr
    (program,) = new.eqns
    if program.primitive is not program_p:
        raise RuntimeError(f"a chain was meant to be one program, not {program.primitive}")
    program = program.replace(params={**program.params, "uncaptured": uncaptured})
    run = jaxpr_as_fun(ClosedJaxpr(new.replace(eqns=[program]), ()))
    return lambda x: run(x)[0]


def between(operations: int) -> Callable[[Function], Function]:
    """One region, half of the operations before it and half after."""

    def others(x: jax.Array) -> jax.Array:
        for _ in range(operations // 2):
            x = jax.lax.optimization_barrier(x + 1)  # each a kernel of XLA's
        return x

    return lambda region: lambda x: others(region(others(x)))


def several(regions: int) -> Callable[[Function], Function]:
    """So many regions, an operation after each."""

    def place(region: Function) -> Function:
        def run(x: jax.Array) -> jax.Array:
            for _ in range(regions):
                x = region(x) + 1
            return x

        return run

    return place


@dataclass(frozen=True)
class Mixed:
    """Regions of a chain among operations of XLA's, as a work."""

    name: str
    chain: Chain
    regions: int
    operations: int
    shape: tuple[int, ...] = Chain.shape

    @property
    def case(self) -> dict[str, Any]:
        return {**self.chain.case, "work": self.name}

    def expected(self, calls: int) -> Any:
        return calls * (self.regions * self.chain.kernels + self.operations)


@dataclass(frozen=True)
class Shape:
    """How regions and operations of XLA's follow each other."""

    name: str
    place: Callable[[Function], Function]
    regions: int
    operations: int


def ways_of(work: Chain, shape: Shape, gpu: bool) -> dict[str, JaxWay]:
    """The work in a shape, captured by XLA and not."""
    add, spin = our_kernels()
    return {
        way: JaxWay(
            jax.jit(
                shape.place(forced(work.of(add, spin), work, uncaptured, gpu)),
                donate_argnums=0 if work.donate else (),
            ),
            work.argument(),
            keep=work.keep,
            kinds=("host", "wall"),
        )
        for way, uncaptured in (("captured", False), ("uncaptured", True))
    }


def run(setup: Setup) -> Iterator[Row]:
    counts = (1, 3) if setup.quick else (1, 2, 3, 5, 10, 20, 50, 100, 200)
    regions = 2 if setup.quick else 8
    shapes = (
        Shape("one region alone", between(0), 1, 0),
        Shape("one region between 2 operations", between(2), 1, 2),
        Shape("one region between 8 operations", between(8), 1, 8),
        Shape(f"{regions} regions, an operation after each", several(regions), regions, regions),
    )
    if setup.quick:
        shapes = shapes[1:2]
    for shape, moving, count in itertools.product(shapes, (False, True), counts):
        work = Chain(count, moving)
        ways = ways_of(work, shape, setup.gpu)
        before = jge.stats()["captured_nodes"]
        found = setup.measure(Mixed(shape.name, work, shape.regions, shape.operations), ways)
        captured = jge.stats()["captured_nodes"] > before
        for row in found:
            yield {**row, "XLA captured": captured}

"""What keeps a region from being one program."""

from __future__ import annotations

from collections.abc import Iterator

from jax.extend import core, source_info_util

from jax_graphenc.base.errors import GraphBreakError
from jax_graphenc.base.jax_compat import of_arrays
from jax_graphenc.regions.cost import Cost
from jax_graphenc.regions.equations import Kind
from jax_graphenc.regions.flatten import FlatEquation
from jax_graphenc.regions.jaxprs import between, holds_kernel
from jax_graphenc.regions.partition import partition


def check_whole(jaxpr: core.ClosedJaxpr, name: str, max_unrolled_nodes: int) -> None:
    """Refuses a region that XLA's operations split into several programs.

    One of very many nodes is cut as well, and is not refused.

    Raises:
        GraphBreakError: naming each operation that must run between kernels, and where it is
            written.
    """
    cut = partition(of_arrays(jaxpr), max_unrolled_nodes)
    loops = [e.kind is Kind.FOREIGN and holds_kernel(e.eqn) for e in cut.equations]
    kernels = [loop or e.kind is Kind.KERNEL for e, loop in zip(cut.equations, loops, strict=True)]
    inside = between([e.eqn for e in cut.equations], kernels)
    split = dict.fromkeys(
        line
        for e, loop, stands_between in zip(cut.equations, loops, inside, strict=True)
        if loop or (stands_between and e.kind is Kind.FOREIGN)
        for line in _describe(e, loop, max_unrolled_nodes)
    )
    if split:
        raise GraphBreakError(
            f"region '{name}' is strict and does not fit into one program. What stands between its "
            "kernels and is no kernel, view, constant, copy or sum of cotangents:\n"
            + "\n".join(f"  {line}" for line in split)
            + "\nMove it before or behind the kernels, write it as a kernel, or drop strict=True"
        )


def _describe(e: FlatEquation, loop: bool, max_unrolled_nodes: int) -> Iterator[str]:
    what = e.eqn.primitive.name
    if loop:
        what += ", a loop or branch that cannot be unrolled, with kernels inside"
    yield f"{what}: {_place(e.eqn)}"
    if what.startswith("while"):
        yield "  its number of iterations is not static"
    elif e.cost is not None:
        yield from _why_not_unrolled(e.cost, max_unrolled_nodes)


def _why_not_unrolled(cost: Cost, max_unrolled_nodes: int) -> Iterator[str]:
    for eqn in cost.foreign:
        yield f"  in its body, {eqn.primitive.name}: {_place(eqn)}"
    if not cost.foreign and cost.reads_counter:
        yield (
            "  an array depends on its counter, so that it is unrolled whole or not at all, and "
            f"max_unrolled_nodes={max_unrolled_nodes} is less than it needs"
        )


def _place(eqn: core.JaxprEqn) -> str:
    return source_info_util.summarize(eqn.source_info)

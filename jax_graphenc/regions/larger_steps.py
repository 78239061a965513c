"""A long loop as a loop of fewer, larger steps."""

from __future__ import annotations

from typing import Any

import jax
from jax.extend import core

from jax_graphenc.regions.scan import Scan


def in_larger_steps(scan: Scan, per_step: int, avals: Any) -> core.ClosedJaxpr:
    """A loop of fewer iterations, each of which is several of the old ones.

    Args:
        scan: the loop.
        per_step: iterations that become one.
        avals: of the constants, the carry and the stacked operands, one list each.

    Returns:
        A function of these to the carry and the stacked results.
    """
    steps, rest = divmod(scan.length, per_step)
    body = core.jaxpr_as_fun(scan.body)

    def several(consts: Any, carried: Any, rows: Any, count: int) -> tuple[list[Any], list[Any]]:
        columns: list[list[Any]] = [[] for _ in range(scan.stacks)]
        order = range(count)
        for k in reversed(order) if scan.reverse else order:
            made = body(*consts, *carried, *(x[k] for x in rows))
            carried = made[: scan.carries]
            for column, value in zip(columns, made[scan.carries :], strict=True):
                column.append(value)
        if scan.reverse:
            columns = [column[::-1] for column in columns]
        return carried, [jax.numpy.stack(column) for column in columns]

    def loop(consts: Any, carried: Any, stacked: Any) -> Any:
        whole_steps = steps * per_step
        last = [x[whole_steps:] for x in stacked]
        tail: list[Any] = []
        if rest and scan.reverse:  # the last rows come first
            carried, tail = several(consts, carried, last, rest)
        carried, columns = jax.lax.scan(
            lambda c, rows: several(consts, c, rows, per_step),
            carried,
            [x[:whole_steps].reshape(steps, per_step, *x.shape[1:]) for x in stacked],
            length=steps,
            reverse=scan.reverse,
        )
        columns = [x.reshape(whole_steps, *x.shape[2:]) for x in columns]
        if rest and not scan.reverse:
            carried, tail = several(consts, carried, last, rest)
        if rest:
            columns = [jax.numpy.concatenate(pair) for pair in zip(columns, tail, strict=True)]
        return carried, columns

    return jax.make_jaxpr(loop)(*avals)

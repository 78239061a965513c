"""How a region is lowered: its jaxpr, with programs in the place of its kernels."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import mlir

from jax_graphenc.base.jax_compat import of_arrays
from jax_graphenc.devices.target import NoGpuError, target_of
from jax_graphenc.primitives import partitioning
from jax_graphenc.primitives.kernel import kernel_p
from jax_graphenc.primitives.program import program_p
from jax_graphenc.primitives.region import region_p
from jax_graphenc.regions.jaxprs import inner_jaxprs
from jax_graphenc.regions.rewrite import Rewriter


def _lower(
    platform: str,
    ctx: mlir.LoweringRuleContext,
    *operands: Any,
    jaxpr: core.ClosedJaxpr,
    name: str,
    strict: bool,
) -> Sequence[Any]:
    """The lowering rule of a region."""
    # A program cannot be split: kernels that can be are left to XLA, one by one.
    if not strict and partitioning.is_partitioned(ctx) and _has(jaxpr.jaxpr, _splits):
        return _lower_jaxpr(ctx, operands, jaxpr, name)
    new = with_programs(platform, jaxpr, name)
    if partitioning.is_partitioned(ctx) and _has(new.jaxpr, lambda eqn: eqn.primitive is program_p):
        partitioning.warn_of_gather(
            ctx,
            f"region '{name}'",
            "Call it inside jax.shard_map, where it sees each device's part and stays one program"
            + ("" if strict else ", or give its kernels cuda_kernel(..., sharding=)"),
        )
    return _lower_jaxpr(ctx, operands, new, name)


def with_programs(platform: str, jaxpr: core.ClosedJaxpr, name: str) -> core.ClosedJaxpr:
    """A region's jaxpr with programs in it, as it is lowered for a platform."""
    try:
        target = target_of(platform)
    except NoGpuError as error:
        raise RuntimeError(f"region '{name}' cannot be lowered for CUDA: {error}") from None
    with _collector_paused():
        return Rewriter(name, target).rewrite(of_arrays(jaxpr))


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keeps Python from looking for garbage among many small objects of which none is any.

    It doubled the time that a region of 10,000 kernels takes to lower.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _lower_jaxpr(
    ctx: mlir.LoweringRuleContext, operands: Sequence[Any], jaxpr: core.ClosedJaxpr, name: str
) -> Sequence[Any]:
    def named(*operands: Any) -> Any:
        with jax.named_scope(name):  # what profilers show
            return core.jaxpr_as_fun(jaxpr)(*operands)

    lowered: Sequence[Any] = mlir.lower_fun(named, multiple_results=True)(ctx, *operands)
    return lowered


def _has(jaxpr: core.Jaxpr, wanted: Callable[[core.JaxprEqn], bool]) -> bool:
    """Whether a jaxpr has such an equation outside ``shard_map``, however deep."""
    return any(
        wanted(eqn)
        or (
            eqn.primitive.name != "shard_map"
            and any(_has(inner.jaxpr, wanted) for inner in inner_jaxprs(eqn))
        )
        for eqn in jaxpr.eqns
    )


def _splits(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive is kernel_p and partitioning.may_split(eqn.params["call"])


for _platform in ("cpu", "cuda"):
    mlir.register_lowering(region_p, functools.partial(_lower, _platform), platform=_platform)

"""Kernel calls that XLA may split over devices, by the kernel's ``sharding=`` rule.

XLA's partitioner cannot look into a custom call, so it gathers the operands of one. A kernel with a
rule is handed to it as a ``custom_partitioning`` call instead, whose parts are calls of the kernel
on the part that a device holds. That happens when the call is lowered, so derivatives, batching
and regions never see it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule, custom_partitioning
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from jax_graphenc.base.errors import GatherWarning
from jax_graphenc.base.tracebacks import warn
from jax_graphenc.calls.call import KernelCall
from jax_graphenc.calls.sharding_rule import Names
from jax_graphenc.primitives.sharding import all_shapes, axes_of, extra, names_of


def may_split(call: KernelCall) -> bool:
    """Whether a call that is made here may be lowered by its rule: not in ``shard_map``."""
    if call.sharding is None or not call.sharding.splits:
        return False
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.empty or not mesh.are_all_axes_manual


@functools.cache
def needs_devices() -> Any:
    """A jaxpr that tells JAX, from an equation's parameter, that its lowering needs the devices.

    JAX hands them to a lowering only where it finds a ``custom_partitioning`` equation.
    """

    @custom_partitioning
    def nothing(x: Any) -> Any:
        return x

    nothing.def_partition(None)
    return jax.make_jaxpr(nothing)(jax.ShapeDtypeStruct((), "float32"))


def is_partitioned(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether XLA may split the arrays of what is lowered here: not in ``shard_map``, say."""
    context = ctx.module_context.axis_context
    if isinstance(context, mlir.ShardingContext):
        return context.num_devices > 1
    if isinstance(context, mlir.SPMDAxisContext):
        shape = context.mesh.shape
        return any(shape[axis] > 1 for axis in set(shape) - set(context.manual_axes))
    return False


def is_split(ctx: mlir.LoweringRuleContext, call: KernelCall) -> bool:
    """Whether a call is lowered by its rule."""
    return call.sharding is not None and call.sharding.splits and _sharding_context(ctx) is not None


def _sharding_context(ctx: mlir.LoweringRuleContext) -> mlir.ShardingContext | None:
    """What XLA partitions over, with devices and mesh; ``None`` where JAX tells a rule nothing.

    That is where some axes of a mesh are manual, among others.
    """
    context = ctx.module_context.axis_context
    if not isinstance(context, mlir.ShardingContext) or context.num_devices == 1:
        return None
    # The arguments' mesh, or that of jax.set_mesh.
    mesh = context.abstract_mesh or jax.sharding.get_abstract_mesh()
    if context.device_assignment is None or mesh.size != context.num_devices:
        return None
    return mlir.ShardingContext(context.num_devices, context.device_assignment, mesh)


def warn_of_gather(ctx: mlir.LoweringRuleContext, what: str, advice: str) -> None:
    """Warns where XLA may have to gather the operands of a custom call.

    Whether it will is decided after lowering; only explicit axes say so in the types.
    """
    avals: Sequence[Any] = ctx.avals_in
    meshes = [aval.sharding.mesh for aval in avals]
    if not is_partitioned(ctx) or (
        meshes and all(not mesh.empty and mesh.are_all_axes_explicit for mesh in meshes)
    ):
        return
    warn(
        f"{what} is lowered for several devices, and XLA cannot split it: operands that are "
        f"sharded are gathered, and every device computes the whole. {advice}",
        GatherWarning,
    )


def lower_split(
    ctx: mlir.LoweringRuleContext, operands: Sequence[Any], call: KernelCall
) -> Sequence[Any]:
    """Lowers a call by its rule, to what XLA splits into calls of the parts."""
    names = names_of(call, all_shapes(call, ctx.avals_in))
    kernel: Any = ctx.primitive

    @custom_partitioning
    def whole(*xs: Any) -> Any:
        return tuple(kernel.bind(*xs, call=call))

    def partition(mesh: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        arrays = (*inputs, *outputs)
        shardings = _agree(mesh, names, arrays)
        shapes = [s.shard_shape(x.shape) for s, x in zip(shardings, arrays, strict=True)]
        part = _part(call, inputs, shapes)

        def compute(*xs: Any) -> Any:
            return tuple(kernel.bind(*xs, call=part))

        return mesh, compute, tuple(shardings[len(inputs) :]), tuple(shardings[: len(inputs)])

    def infer(mesh: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        return tuple(_agree(mesh, names, inputs)[len(inputs) :])

    whole.def_partition(
        partition,
        infer_sharding_from_operands=infer,  # for JAX's older partitioner
        sharding_rule=_shardy_rule(names, len(operands)),
    )
    module = ctx.module_context.replace(axis_context=_sharding_context(ctx))
    lower = mlir.lower_fun(whole, multiple_results=True)
    lowered: Sequence[Any] = lower(ctx.replace(module_context=module), *operands)
    return lowered


def _shardy_rule(names: Sequence[Names], operands: int) -> SdyShardingRule:
    factors: dict[str, str] = {}
    whole: list[str] = []
    mappings = []
    for dims in names:
        mapping = []
        for name in dims:
            if name is None:
                whole.append(f"whole{len(whole)}")
                mapping.append(whole[-1])
            else:
                mapping.append(factors.setdefault(name, f"split{len(factors)}"))
        mappings.append(ArrayMapping(*mapping))
    return SdyShardingRule(
        tuple(mappings[:operands]),
        tuple(mappings[operands:]),
        need_replication_factors=tuple(whole),
    )


def _agree(mesh: Any, names: Sequence[Names], arrays: Sequence[Any]) -> list[NamedSharding]:
    """How each array is split, from what the partitioner proposes: every name in one way.

    Args:
        mesh: the devices, as JAX gives them to a rule.
        names: of the dimensions of inputs and outputs.
        arrays: the inputs, and the outputs if something is proposed for them.

    Returns:
        For each of the inputs and outputs.
    """
    split: dict[str, Any] = {}
    used: set[Any] = set()
    for dims, x in zip(names, arrays, strict=False):
        for name, size, axes in zip(dims, x.shape, tuple(x.sharding.spec), strict=True):
            if name is None or name in split or axes is None or used & {*axes_of(axes)}:
                continue
            # The last of uneven parts would be padded with what the kernel must not see.
            if size % math.prod(mesh.shape[axis] for axis in axes_of(axes)) == 0:
                split[name] = axes
                used.update(axes_of(axes))
    return [
        NamedSharding(mesh, PartitionSpec(*(split.get(name) if name else None for name in dims)))
        for dims in names
    ]


def _part(call: KernelCall, inputs: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> KernelCall:
    """The call on one device, for parts of these shapes: the inputs', then the outputs'."""
    assert call.sharding is not None
    assert call.remake is not None
    fronts = [sum(mask[i] for _, mask in call.batch) for i in range(len(inputs))]
    arrays = [(s[n:], x.dtype) for s, n, x in zip(shapes, fronts, inputs, strict=False)]
    depth = len(call.batch)
    rest = [*(shape for shape, _ in arrays), *(s[depth:] for s in shapes[len(inputs) :])]
    out_shape = None
    if extra(call, rest):
        # The definition's knows nothing of dimensions that batching added.
        out_shape = [
            jax.ShapeDtypeStruct(shape, p.dtype)
            for p, shape in zip(call.outputs(), rest[len(inputs) :], strict=True)
            if p.role == "out"
        ]
    part = call.remake(arrays, out_shape)
    sizes = shapes[len(inputs)][:depth]
    batch = tuple((n, mask) for n, (_, mask) in zip(sizes, call.batch, strict=True))
    part = replace(part, batch=batch, max_batch_nodes=call.max_batch_nodes, sharding=None)
    made = [shape for shape, _ in part.batched_results()]
    wanted = list(shapes[len(inputs) :])
    if made != wanted:
        given = ", ".join(map(str, shapes[: len(inputs)]))
        raise ValueError(
            f"kernel '{call.label}': of inputs split into {given}, out_shape= makes "
            f"{', '.join(map(str, made))}, and the parts of its outputs are "
            f"{', '.join(map(str, wanted))}: out_shape= is to follow the shapes of the inputs"
        )
    return part

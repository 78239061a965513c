"""``sharding=``: the dimensions of a kernel's arrays that may be split over devices.

XLA's partitioner cannot look into a custom call, so it gathers the operands of one. A kernel with a
rule is handed to it as a ``custom_partitioning`` call instead, whose parts are calls of the kernel
on the part that a device holds. That happens when the call is lowered, so derivatives, batching
and regions never see it.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental.custom_partitioning import ArrayMapping, SdyShardingRule, custom_partitioning
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from jax_graphenc.arguments import Array
from jax_graphenc.errors import GatherWarning
from jax_graphenc.tracebacks import warn

if TYPE_CHECKING:
    from jax_graphenc.call import KernelCall

Names = tuple[str | None, ...]
"""Of an array's dimensions; ``None`` for one that stays whole."""

_WORD = re.compile(r"[^\W\d_]\w*|_|\.\.\.")


@dataclass(frozen=True, slots=True)
class Rule:
    """The names that a rule gives to the dimensions of inputs and outputs, in the kernel's order.

    ``"_"`` is a dimension that stays whole, and ``"..."``, in front, as many as there are.
    """

    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]

    @property
    def splits(self) -> bool:
        """Whether there is a dimension that may be split."""
        return any(word != "_" for words in self.outputs for word in words)


def parse(text: str, inputs: Sequence[str], outputs: Sequence[str], spelled: str) -> Rule:
    """Reads a rule such as ``"b n, n -> b n"``.

    Args:
        text: the rule.
        inputs: the kernel's, by name.
        outputs: likewise.
        spelled: the kernel's signature, for messages.

    Raises:
        TypeError: if it is no string.
        ValueError: for what is no rule, or one that a split call could not keep.
    """
    where = f"kernel {spelled}: sharding={text!r}"
    if not isinstance(text, str):
        raise TypeError(f"{where}: a string such as 'b n, n -> b n' is expected")
    sides = text.split("->")
    if len(sides) != 2:
        raise ValueError(f"{where}: inputs, '->' and outputs are expected, as in 'b n, n -> b n'")
    rule = Rule(
        *(
            tuple(_words(part, where) for part in (side.split(",") if side.strip() else ()))
            for side in sides
        )
    )
    # One array without dimensions is an empty side.
    if not rule.inputs and len(inputs) == 1:
        rule = replace(rule, inputs=((),))
    if not rule.outputs and len(outputs) == 1:
        rule = replace(rule, outputs=((),))
    for what, names, arrays in (
        ("inputs", inputs, rule.inputs),
        ("outputs", outputs, rule.outputs),
    ):
        if len(names) != len(arrays):
            counted = what if len(arrays) != 1 else what.removesuffix("s")
            raise ValueError(
                f"{where} describes {len(arrays)} {counted}; the kernel has {len(names)} "
                f"({', '.join(names) or 'none'})"
            )
    for word in {w: None for words in (*rule.inputs, *rule.outputs) for w in words if w != "_"}:
        # Each device computes a part of every output, or the parts would not fit together.
        if not all(word in words for words in rule.outputs):
            raise ValueError(
                f"{where}: '{word}' may be split only if every output has it; write _ for a "
                "dimension that the kernel needs whole"
            )
        if not any(word in words for words in rule.inputs):
            raise ValueError(
                f"{where}: '{word}' is a dimension of no input, so that a device could not tell "
                "which part of it is its own; write _"
            )
    return rule


def _words(part: str, where: str) -> tuple[str, ...]:
    words = tuple(part.split())
    for i, word in enumerate(words):
        if not _WORD.fullmatch(word) or (word == "..." and i):
            raise ValueError(
                f"{where}: {word!r}: names, _ for a dimension that stays whole, and ... in front "
                "for any number of dimensions are expected"
            )
        if word != "_" and word in words[:i]:
            raise ValueError(f"{where}: an array has '{word}' twice")
    return words


def dimensions(
    rule: Rule, shapes: Sequence[tuple[int, ...]], kernel: str, extra: int = 0
) -> list[Names]:
    """The names of the dimensions of arrays of these shapes: the inputs', then the outputs'.

    Args:
        rule: of the kernel.
        shapes: of the arrays.
        kernel: its name, for messages.
        extra: dimensions that every array has in front of those that the rule speaks of. They may
            be split, and so may those of ``...``; one of size 1 beside larger ones stays whole.

    Raises:
        ValueError: if the rule does not fit.
    """
    sizes: dict[str, int] = {}
    given: list[list[str | None]] = []
    dots: int | None = None
    for words, shape in zip((*rule.inputs, *rule.outputs), shapes, strict=True):
        names: list[str | None] = [word if word != "_" else None for word in words]
        if words[:1] == ("...",):
            rest = len(shape) - extra - len(words) + 1
            dots = rest if dots is None else dots
            names[:1] = [f"...{i}" for i in range(dots)]
        names[:0] = [f"...extra {i}" for i in range(extra)]
        if len(names) != len(shape):
            raise ValueError(
                f"kernel '{kernel}': sharding= has '{' '.join(words)}' for an array of shape "
                f"{shape}"
            )
        for name, size in zip(names, shape, strict=True):
            if name is not None:
                known = sizes.setdefault(name, size)
                sizes[name] = size if name.startswith("...") and known == 1 else known
        given.append(names)
    found = []
    for i, (names, shape) in enumerate(zip(given, shapes, strict=True)):
        for name, size in zip(names, shape, strict=True):
            if name is None or size == sizes[name]:
                continue
            if i >= len(rule.inputs) or size != 1 or not name.startswith("..."):
                raise ValueError(
                    f"kernel '{kernel}': sharding= gives the name '{name}' to dimensions of "
                    f"{sizes[name]} and {size}; those that are split together have one size"
                )
        found.append(
            tuple(
                name if name is not None and size == sizes[name] else None
                for name, size in zip(names, shape, strict=True)
            )
        )
    return found


def _extra(rule: Rule, shapes: Sequence[tuple[int, ...]]) -> int:
    """How many dimensions a call's arrays have in front of those that a rule speaks of.

    Batching may have made the call for such; ``...`` takes them in.
    """
    for words, shape in zip((*rule.inputs, *rule.outputs), shapes, strict=True):
        if words[:1] != ("...",):
            return max(len(shape) - len(words), 0)
    return 0


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


def _names(call: KernelCall, shapes: Sequence[tuple[int, ...]]) -> list[Names]:
    """As ``dimensions``, with those of the batch in front: they may be split as well."""
    assert call.sharding is not None
    masks = [tuple(mask[i] for _, mask in call.batch) for i in range(len(call.operands()))]
    masks += [(True,) * len(call.batch)] * len(call.results)
    fronts = [[f"batch {i}" for i, m in enumerate(mask) if m] for mask in masks]
    rule = call.sharding
    rest = [shape[len(front) :] for shape, front in zip(shapes, fronts, strict=True)]
    inner = dimensions(rule, rest, call.label, _extra(rule, rest))
    return [(*front, *names) for front, names in zip(fronts, inner, strict=True)]


def _all_shapes(call: KernelCall, operands: Sequence[Any]) -> list[tuple[int, ...]]:
    return [*(x.shape for x in operands), *(shape for shape, _ in call.batched_results())]


# ---------------------------------------------------------------------- explicit axes


def result_specs(call: KernelCall, operands: Sequence[Any]) -> list[PartitionSpec]:
    """How the outputs are split over explicit mesh axes, by the types of the operands.

    Raises:
        TypeError: for an operand that is split where the kernel has no rule for it.
    """
    outputs = call.batched_results()
    specs = [
        tuple(aval.sharding.spec) + (None,) * (aval.ndim - len(aval.sharding.spec))
        for aval in operands
    ]
    if call.sharding is None:
        names: list[Names] = [(None,) * len(spec) for spec in specs]
        names += [(None,) * len(shape) for shape, _ in outputs]
    else:
        names = _names(call, _all_shapes(call, operands))
    split: dict[str, Any] = {}
    for p, spec, dims in zip(call.operands(), specs, names, strict=False):
        for axes, name in zip(spec, dims, strict=True):
            if axes is None:
                continue
            if name is None or split.setdefault(name, axes) != axes:
                raise TypeError(
                    f"kernel '{call.label}': input '{p.name}' is sharded as "
                    f"{PartitionSpec(*spec)} over explicit mesh axes, "
                    + (
                        "and the kernel takes such dimensions whole: name those that may be split "
                        "in cuda_kernel(..., sharding=), or call it inside jax.shard_map, where it "
                        "sees each device's part"
                        if name is None
                        else f"and another input's '{name}' over {split[name]!r}: bring them "
                        "together with jax.sharding.reshard"
                    )
                )
    taken: dict[Any, str] = {}
    for name, axes in split.items():
        for axis in _axes(axes):
            if taken.setdefault(axis, name) != name:
                raise TypeError(
                    f"kernel '{call.label}': '{taken[axis]}' and '{name}' are both sharded over "
                    f"{axis!r}, and every output has both: use jax.sharding.reshard on one"
                )
    return [
        PartitionSpec(*(split.get(name) if name else None for name in dims))
        for dims in names[len(operands) :]
    ]


# ---------------------------------------------------------------------- lowering


def is_partitioned(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether XLA may split the arrays of what is lowered here: not in ``shard_map``, say."""
    context = ctx.module_context.axis_context
    if isinstance(context, mlir.ShardingContext):
        return context.num_devices > 1
    if isinstance(context, mlir.SPMDAxisContext):
        shape = context.mesh.shape
        return any(shape[axis] > 1 for axis in set(shape) - set(context.manual_axes))
    return False


def may_split(call: KernelCall) -> bool:
    """Whether a call that is made here may be lowered by its rule: not in ``shard_map``."""
    if call.sharding is None or not call.sharding.splits:
        return False
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.empty or not mesh.are_all_axes_manual


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
    names = _names(call, _all_shapes(call, ctx.avals_in))
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
            if name is None or name in split or axes is None or used & {*_axes(axes)}:
                continue
            # The last of uneven parts would be padded with what the kernel must not see.
            if size % math.prod(mesh.shape[axis] for axis in _axes(axes)) == 0:
                split[name] = axes
                used.update(_axes(axes))
    return [
        NamedSharding(mesh, PartitionSpec(*(split.get(name) if name else None for name in dims)))
        for dims in names
    ]


def _axes(axes: Any) -> tuple[Any, ...]:
    return axes if isinstance(axes, tuple) else (axes,)


def _part(call: KernelCall, inputs: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> KernelCall:
    """The call on one device, for parts of these shapes: the inputs', then the outputs'."""
    assert call.sharding is not None
    assert call.remake is not None
    fronts = [sum(mask[i] for _, mask in call.batch) for i in range(len(inputs))]
    arrays = [(s[n:], x.dtype) for s, n, x in zip(shapes, fronts, inputs, strict=False)]
    depth = len(call.batch)
    rest = [*(shape for shape, _ in arrays), *(s[depth:] for s in shapes[len(inputs) :])]
    out_shape = None
    if _extra(call.sharding, rest):
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


def check(rule: Rule, inputs: Sequence[Array], results: Sequence[Array], kernel: str) -> None:
    """Holds a rule against the shapes of a call.

    Raises:
        ValueError: if it does not fit.
    """
    dimensions(rule, [shape for shape, _ in (*inputs, *results)], kernel)

"""The types of a kernel call's outputs, which are split and vary over a mesh as its inputs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jax_graphenc.calls.call import KernelCall
from jax_graphenc.calls.sharding_rule import Names, dimensions

_T = TypeVar("_T")


def result_avals(call: KernelCall, operands: Sequence[Any]) -> list[jax.core.ShapedArray]:
    """Types of the outputs, which vary over the mesh axes that any operand varies over.

    Raises:
        TypeError: for an operand that is sharded over an explicit mesh axis and has no rule for it.
    """
    results = call.batched_results()
    # What varies or is sharded knows its mesh, also while a region is lowered, when none is set.
    meshes = (aval.sharding.mesh for aval in operands if not aval.sharding.mesh.empty)
    mesh = next(meshes, jax.sharding.get_abstract_mesh())
    if mesh.empty:
        return [jax.core.ShapedArray(shape, dtype) for shape, dtype in results]
    specs = _result_specs(call, operands)
    varying = frozenset[Any]().union(*(aval.manual_axis_type.varying for aval in operands))
    return [
        jax.core.ShapedArray(
            shape,
            np.dtype(dtype),
            sharding=NamedSharding(mesh, spec),
            manual_axis_type=jax.sharding.ManualAxisType(varying=varying),
        )
        for (shape, dtype), spec in zip(results, specs, strict=True)
    ]


def _result_specs(call: KernelCall, operands: Sequence[Any]) -> list[PartitionSpec]:
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
        names = names_of(call, all_shapes(call, operands))
    split = _split_names(call, specs, names)
    return [
        PartitionSpec(*(split.get(name) if name else None for name in dims))
        for dims in names[len(operands) :]
    ]


def _split_names(
    call: KernelCall, specs: Sequence[tuple[Any, ...]], names: Sequence[Names]
) -> dict[str, Any]:
    """The mesh axes of each name, which all operands agree on.

    Raises:
        TypeError: where they do not, or a dimension without a name is split.
    """
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
        for axis in axes_of(axes):
            if taken.setdefault(axis, name) != name:
                raise TypeError(
                    f"kernel '{call.label}': '{taken[axis]}' and '{name}' are both sharded over "
                    f"{axis!r}, and every output has both: use jax.sharding.reshard on one"
                )
    return split


def names_of(call: KernelCall, shapes: Sequence[tuple[int, ...]]) -> list[Names]:
    """As ``dimensions``, with those of the batch in front: they may be split as well."""
    assert call.sharding is not None
    masks = [tuple(mask[i] for _, mask in call.batch) for i in range(len(call.operands()))]
    masks += [(True,) * len(call.batch)] * len(call.results)
    fronts = [[f"batch {i}" for i, m in enumerate(mask) if m] for mask in masks]
    rest = [shape[len(front) :] for shape, front in zip(shapes, fronts, strict=True)]
    inner = iter(dimensions(call.sharding, ruled(call, rest), call.label, extra(call, rest)))
    loaded = [p.loaded for p in call.operands()] + [False] * len(call.results)
    return [
        (*front, *(() if is_loaded else next(inner)))
        for front, is_loaded in zip(fronts, loaded, strict=True)
    ]


def ruled(call: KernelCall, arrays: Sequence[_T]) -> list[_T]:
    """Of operands and outputs, those that the rule speaks of: all but loaded values."""
    loaded = [p.loaded for p in call.operands()] + [False] * len(call.results)
    return [x for x, is_loaded in zip(arrays, loaded, strict=True) if not is_loaded]


def all_shapes(call: KernelCall, operands: Sequence[Any]) -> list[tuple[int, ...]]:
    """The shapes of the operands, then of the outputs with their batch."""
    return [*(x.shape for x in operands), *(shape for shape, _ in call.batched_results())]


def extra(call: KernelCall, shapes: Sequence[tuple[int, ...]]) -> int:
    """How many dimensions a call's arrays have in front of those that its rule speaks of.

    Batching may have made the call for such; ``...`` takes them in.
    """
    rule = call.sharding
    assert rule is not None
    for words, shape in zip((*rule.inputs, *rule.outputs), ruled(call, shapes), strict=True):
        if words[:1] != ("...",):
            return max(len(shape) - len(words), 0)
    return 0


def axes_of(axes: Any) -> tuple[Any, ...]:
    """The mesh axes that an entry of a ``PartitionSpec`` names."""
    return axes if isinstance(axes, tuple) else (axes,)

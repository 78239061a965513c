"""What ``jax.vmap`` makes of a kernel call: nodes, a loop, one larger launch, or a rule's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive

from jax_graphenc.calls.call import VMAP_METHODS, BatchingRule, KernelCall, Reference


def batch(
    kernel: Primitive,
    operands: Sequence[Any],
    dims: Sequence[int | None],
    *,
    call: KernelCall,
    **_: Any,
) -> tuple[Sequence[Any], Sequence[int | None]]:
    """The batching rule of ``kernel_p``, which is the first argument.

    Raises:
        NotImplementedError: for a kernel that refuses to be batched.
    """
    mapped = tuple(d is not None for d in dims)
    pairs = list(zip(operands, dims, strict=True))
    size = next(x.shape[d] for x, d in pairs if d is not None)
    moved = [x if d is None else jnp.moveaxis(x, d, 0) for x, d in pairs]
    if isinstance(call.vmap, BatchingRule):
        return _by_rule(call.vmap, call, size, mapped, moved)
    if call.vmap is None:
        others = VMAP_METHODS[1:]
        raise NotImplementedError(
            f"kernel '{call.label}' has no batching rule: it was made with vmap=None. "
            "vmap='nodes', the default, launches it once per element of the batch; the other "
            f"methods are {', '.join(map(repr, others))}; a function is a rule of your own"
        )
    if size == 0:
        shapes = call.batched_results()
        results = [jnp.zeros((0, *shape), dtype) for shape, dtype in shapes]
    elif call.vmap == "sequential":
        results = _in_chunks(kernel, call, 1, mapped, moved)
    elif call.vmap == "nodes" or call.batch or _maps_a_value(call, mapped):
        results = _as_nodes(kernel, call, size, mapped, moved)
    else:
        results = _as_one_launch(kernel, call, size, mapped, moved)
    return results, [0] * len(results)


def _maps_a_value(call: KernelCall, mapped: Sequence[bool]) -> bool:
    """Whether a by-value parameter differs between elements: no one launch has several."""
    return any(m and p.loaded for m, p in zip(mapped, call.operands(), strict=True))


def _as_nodes(
    kernel: Primitive,
    call: KernelCall,
    size: int,
    mapped: tuple[bool, ...],
    operands: Sequence[Any],
) -> list[Any]:
    """The same call with one more dimension of its batch; beyond the bound, a loop of such."""
    # The nodes that a step of the loop has room for, in elements of this dimension.
    room = max(1, call.max_batch_nodes // math.prod(n for n, _ in call.batch))
    if size > room:
        # As few steps as there can be, and of equal size if that makes no more of them.
        return _in_chunks(kernel, call, math.ceil(size / math.ceil(size / room)), mapped, operands)
    batched = replace(call, batch=((size, mapped), *call.batch))
    results: list[Any] = kernel.bind(*operands, call=batched)
    return results


def _in_chunks(
    kernel: Primitive, call: KernelCall, chunk: int, mapped: Sequence[bool], operands: Sequence[Any]
) -> list[Any]:
    """A loop whose steps are so many elements of the batch; what is left over comes after it."""

    def one(elements: list[Any]) -> list[Any]:
        rest = iter(elements)
        mixed = [next(rest) if m else x for x, m in zip(operands, mapped, strict=True)]
        results: list[Any] = kernel.bind(*mixed, call=call)
        return results

    batched = [x for x, m in zip(operands, mapped, strict=True) if m]
    results: list[Any] = jax.lax.map(one, batched, batch_size=chunk if chunk > 1 else None)
    return results


def _as_one_launch(
    kernel: Primitive, call: KernelCall, size: int, mapped: Sequence[bool], operands: Sequence[Any]
) -> list[Any]:
    """The kernel for arrays with one more dimension in front, as ``jax.ffi.ffi_call`` does it."""
    # What is updated in place becomes an output, of which each element has its own.
    sizes = [
        None if p.loaded else size if m or call.vmap == "broadcast_all" or p.role == "inout" else 1
        for m, p in zip(mapped, call.operands(), strict=True)
    ]
    operands = [
        x if m or n is None else jnp.broadcast_to(x, (n, *x.shape))
        for x, m, n in zip(operands, mapped, sizes, strict=True)
    ]
    pure = [
        jax.ShapeDtypeStruct((size, *shape), dtype)
        for p, (shape, dtype) in zip(call.outputs(), call.results, strict=True)
        if p.role == "out"
    ]
    assert call.remake is not None
    try:
        larger = call.remake(tuple((x.shape, x.dtype) for x in operands), pure)
    except Exception as error:
        error.add_note(
            f"in vmap={call.vmap!r} of kernel '{call.label}': its launch is computed anew, for "
            "arrays with the dimension of the batch in front"
        )
        raise
    if call.reference is not None:
        function = _Mapped(call.reference.function, size, tuple(sizes))
        larger = replace(larger, reference=Reference(function, call.reference.keywords))
    results: list[Any] = kernel.bind(*operands, call=larger)
    return results


@dataclass(frozen=True, slots=True)
class _Mapped:
    """A function of one element as a function of arrays with the dimension of the batch in front.

    All elements share an input of which there is one, and one without the dimension.
    """

    function: Callable[..., Any]
    size: int
    sizes: tuple[int | None, ...]

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        axes = [None if n is None or n < self.size else 0 for n in self.sizes]
        rows = [
            x if n is None or axis == 0 else x[0]
            for x, n, axis in zip(inputs, self.sizes, axes, strict=True)
        ]
        return jax.vmap(lambda *xs: self.function(*xs, **keywords), axes, axis_size=self.size)(
            *rows
        )


def _by_rule(
    rule: BatchingRule,
    call: KernelCall,
    size: int,
    mapped: Sequence[bool],
    operands: Sequence[Any],
) -> tuple[list[Any], list[int | None]]:
    """What a rule of the user's gives, held against what the kernel gives."""
    where = f"in vmap= of kernel '{call.label}'"
    try:
        made = rule.function(size, list(mapped), *operands, **rule.keywords.values)
    except Exception as error:
        error.add_note(where)
        raise
    if not isinstance(made, tuple) or len(made) != 2:
        raise TypeError(
            f"{where}: the rule returns {_shown(made)}; (outputs, out_batched) is expected, "
            "with True in out_batched for each output that has the batch as its first dimension"
        )
    outputs, flags = (x if isinstance(x, tuple | list) else (x,) for x in made)
    if not len(outputs) == len(flags) == len(call.results):
        raise TypeError(
            f"{where}: the rule returns {len(outputs)} outputs and says of {len(flags)} whether "
            f"they are batched; the kernel has {len(call.results)}"
        )
    arrays = [jnp.asarray(x) for x in outputs]
    for i, (x, flag, (shape, dtype)) in enumerate(zip(arrays, flags, call.results, strict=True)):
        expected = (size, *shape) if flag else shape
        if (x.shape, x.dtype) != (expected, dtype):
            raise TypeError(
                f"{where}: the rule's output {i} is {x.dtype}{list(x.shape)}; "
                f"{dtype}{list(expected)} is expected of one that is "
                f"{'batched' if flag else 'not batched'}"
            )
    return arrays, [0 if flag else None for flag in flags]


def _shown(made: Any) -> str:
    if isinstance(made, jax.Array):  # also a traced one, whose class is JAX's own
        return f"{made.dtype}{list(made.shape)}"
    return type(made).__name__

"""The JAX primitive of a kernel call, and its rules.

Exported for those who write rules of their own: ``kernel_p.bind(*operands, call=KernelCall(...))``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from jax_graphenc import lowering
from jax_graphenc.call import KernelCall

__all__ = ["KernelCall", "kernel_p"]

kernel_p = Primitive("cuda_kernel")
kernel_p.multiple_results = True
kernel_p.def_impl(functools.partial(xla.apply_primitive, kernel_p))


def _abstract_eval(*operands: Any, call: KernelCall) -> list[jax.core.ShapedArray]:
    return lowering.result_avals(call, operands)


kernel_p.def_abstract_eval(_abstract_eval)


def _jvp(primals: Any, tangents: Any, *, call: KernelCall) -> tuple[list[Any], list[Any]]:
    if not any(jax.numpy.issubdtype(dtype, jax.numpy.inexact) for _, dtype in call.results):
        results = kernel_p.bind(*primals, call=call)
        return results, [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    raise NotImplementedError(
        f"kernel '{call.label}' has no derivative. Either give cuda_kernel(..., reference=) the "
        f"same function in jax.numpy, or give rules of your own with {call.name}.defvjp(fwd, bwd) "
        f"or {call.name}.defjvp(jvp)"
    )


ad.primitive_jvps[kernel_p] = _jvp


def _batch(
    operands: Sequence[Any], dims: Sequence[int | None], *, call: KernelCall
) -> tuple[list[Any], list[int]]:
    if call.vmap is None:
        raise NotImplementedError(
            f"kernel '{call.label}' has no batching rule. Either give cuda_kernel(..., "
            "vmap='sequential'), which launches it once per element of the batch, or wrap it in "
            "jax.custom_batching.custom_vmap with a rule of your own"
        )
    pairs = list(zip(operands, dims, strict=True))
    batched = [jax.numpy.moveaxis(x, d, 0) for x, d in pairs if d is not None]

    def one(elements: list[Any]) -> list[Any]:
        rest = iter(elements)
        mixed = [x if d is None else next(rest) for x, d in pairs]
        results: list[Any] = kernel_p.bind(*mixed, call=call)
        return results

    results = jax.lax.map(one, batched)
    return results, [0] * len(results)


batching.primitive_batchers[kernel_p] = _batch

for _platform in ("cpu", "cuda"):
    mlir.register_lowering(
        kernel_p, functools.partial(lowering.lower_call, _platform), platform=_platform
    )
lowering.register_targets()

"""``kernel_p``: one kernel, compiled when it is lowered."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from jax_graphenc.base.jax_compat import print_in_one_line
from jax_graphenc.base.shapes import byte_count
from jax_graphenc.calls.call import KernelCall
from jax_graphenc.devices.target import NoGpuError, target_of
from jax_graphenc.primitives import partitioning
from jax_graphenc.primitives.batching import batch
from jax_graphenc.primitives.sharding import result_avals
from jax_graphenc.programs.compiled_call import compile_for
from jax_graphenc.programs.custom_call import emit, program_of


class _KernelPrimitive(Primitive):
    def bind(self, *operands: Any, call: KernelCall, **params: Any) -> Any:
        # A call that XLA may split is lowered with the devices at hand.
        if partitioning.may_split(call):
            params["needs_devices"] = partitioning.needs_devices()
        return Primitive.bind(self, *operands, call=call, **params)


kernel_p: Primitive = _KernelPrimitive("cuda_kernel")
kernel_p.multiple_results = True


def _abstract_eval(*operands: Any, call: KernelCall, **_: Any) -> list[jax.core.ShapedArray]:
    return result_avals(call, operands)


def _jvp(primals: Any, tangents: Any, *, call: KernelCall, **_: Any) -> tuple[list[Any], list[Any]]:
    if not any(jax.numpy.issubdtype(dtype, jax.numpy.inexact) for _, dtype in call.results):
        results = kernel_p.bind(*primals, call=call)
        return results, [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    if call.reference is not None:
        # JAX forgets rules of functions in the part of a loop that needs no tangent, which a
        # derivative of higher order differentiates again.
        given = [ad.instantiate_zeros(t) for t in tangents]
        _, out = jax.jvp(call.run_reference, tuple(primals), tuple(given))
        return kernel_p.bind(*primals, call=call), [
            ad.Zero(jax.typeof(t)) if t.dtype == jax.dtypes.float0 else t for t in out
        ]
    raise NotImplementedError(
        f"kernel '{call.label}' has no derivative. Either give cuda_kernel(..., reference=) the "
        f"same function in jax.numpy, or give rules of your own with {call.name}.defvjp(fwd, bwd) "
        f"or {call.name}.defjvp(jvp)"
    )


def _transpose(
    cotangents: Sequence[Any], *operands: Any, call: KernelCall, **_: Any
) -> Sequence[Any]:
    """The transpose of the reference, for a kernel that is linear in what is not known."""
    if call.reference is None:
        raise NotImplementedError(
            f"kernel '{call.label}' cannot be transposed, as jax.grad does with what is linear in "
            "a rule of defjvp: give cuda_kernel(..., reference=) the same function in jax.numpy, "
            f"or rules for jax.grad with {call.name}.defvjp(fwd, bwd)"
        )
    linear = [ad.is_undefined_primal(x) for x in operands]
    inexact = [jax.numpy.issubdtype(dtype, jax.numpy.inexact) for _, dtype in call.results]

    def of_linear(*xs: Any) -> list[Any]:
        rest = iter(xs)
        whole = [next(rest) if m else x for x, m in zip(operands, linear, strict=True)]
        outputs = zip(call.run_reference(*whole), inexact, strict=True)
        return [x for x, is_inexact in outputs if is_inexact]

    avals = [x.aval for x, m in zip(operands, linear, strict=True) if m]
    given = [
        ad.instantiate_zeros(ct)
        for ct, is_inexact in zip(cotangents, inexact, strict=True)
        if is_inexact
    ]
    found = iter(jax.linear_transpose(of_linear, *avals)(given))
    return [next(found) if m else None for m in linear]


def _lower(
    platform: str, ctx: mlir.LoweringRuleContext, *operands: Any, call: KernelCall, **_: Any
) -> Sequence[Any]:
    """The lowering rule of a lone kernel: a program of its own, or one for each part."""
    split = partitioning.is_split(ctx, call)
    try:
        # A part asks for less memory. It is compiled here as well, so that errors are Python's own.
        whole = replace(call, shared_bytes=0) if split else call
        kernel = compile_for(whole, target_of(platform))
    except NoGpuError as error:
        raise RuntimeError(f"kernel '{call.label}' cannot be lowered for CUDA: {error}") from None
    if kernel is None:
        return _lower_reference(ctx, *operands, call=call)
    if split:
        return partitioning.lower_split(ctx, operands, call)
    if call.sharding is None or call.sharding.splits:
        partitioning.warn_of_gather(
            ctx,
            f"kernel '{call.label}'",
            "Name the dimensions that may be split in cuda_kernel(..., sharding=), with _ for "
            "those that may not, or call it inside jax.shard_map, where it sees each device's part",
        )
    made, uncaptured = program_of(call, kernel, list(map(byte_count, ctx.avals_in)))
    return emit(ctx, operands, made, uncaptured=uncaptured)


def _lower_reference(
    ctx: mlir.LoweringRuleContext, *operands: Any, call: KernelCall
) -> Sequence[Any]:
    results: Sequence[Any] = mlir.lower_fun(call.run_reference, multiple_results=True)(
        ctx, *operands
    )
    return results


print_in_one_line(kernel_p, lambda params: repr(params["call"]))
kernel_p.def_impl(functools.partial(xla.apply_primitive, kernel_p))
kernel_p.def_abstract_eval(_abstract_eval)
ad.primitive_jvps[kernel_p] = _jvp
ad.primitive_transposes[kernel_p] = _transpose
batching.primitive_batchers[kernel_p] = functools.partial(batch, kernel_p)
for _platform in ("cpu", "cuda"):
    mlir.register_lowering(kernel_p, functools.partial(_lower, _platform), platform=_platform)

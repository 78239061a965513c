"""The JAX primitives, and their rules, for those who write rules of their own.

- ``kernel_p.bind(*operands, call=KernelCall(...))`` is one kernel, compiled when it is lowered.
- ``program_p.bind(*operands, program=Program(...), results=..., uncaptured=...)`` is a program that
  is already made for one platform: its arguments are the operands; ``results`` has the
  ``jax.core.ShapedArray`` of each of its results but its scratch memory, which is not returned.
- ``region_p.bind(*operands, jaxpr=..., name=..., strict=...)`` calls a closed jaxpr that has no
  constants, and whose kernels are gathered into programs when it is lowered.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, mlir, xla

from jax_graphenc import lowering, sharding
from jax_graphenc.call import KernelCall
from jax_graphenc.program import Program
from jax_graphenc.region import region_p

Results = tuple[jax.core.ShapedArray, ...]

__all__ = ["KernelCall", "Program", "kernel_p", "program_p", "region_p"]


class _KernelPrimitive(Primitive):
    def bind(self, *operands: Any, call: KernelCall, **params: Any) -> Any:
        # Whoever binds it: a call that XLA may split is lowered with the devices at hand.
        if sharding.may_split(call):
            params["needs_devices"] = sharding.needs_devices()
        return Primitive.bind(self, *operands, call=call, **params)


kernel_p: Primitive = _KernelPrimitive("cuda_kernel")
kernel_p.multiple_results = True
kernel_p.def_impl(functools.partial(xla.apply_primitive, kernel_p))


def _abstract_eval(*operands: Any, call: KernelCall, **_: Any) -> list[jax.core.ShapedArray]:
    return lowering.result_avals(call, operands)


kernel_p.def_abstract_eval(_abstract_eval)


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


ad.primitive_jvps[kernel_p] = _jvp

program_p = Primitive("cuda_program")
program_p.multiple_results = True
program_p.def_impl(functools.partial(xla.apply_primitive, program_p))


def _abstract_eval_program(
    *operands: Any, program: Program, results: Results, uncaptured: bool
) -> list[jax.core.ShapedArray]:
    return list(results)


def _lower_program(
    ctx: mlir.LoweringRuleContext,
    *operands: Any,
    program: Program,
    results: Results,
    uncaptured: bool,
) -> Sequence[Any]:
    return lowering.emit(ctx, operands, program, uncaptured=uncaptured)


program_p.def_abstract_eval(_abstract_eval_program)
mlir.register_lowering(program_p, _lower_program)

for _platform in ("cpu", "cuda"):
    mlir.register_lowering(
        kernel_p, functools.partial(lowering.lower_call, _platform), platform=_platform
    )
lowering.register_targets()

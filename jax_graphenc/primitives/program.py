"""``program_p``: a program that is already made for one platform, as an equation."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import mlir, xla

from jax_graphenc.programs.custom_call import emit, register_targets
from jax_graphenc.programs.program import Program

Results = tuple[jax.core.ShapedArray, ...]

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
    return emit(ctx, operands, program, uncaptured=uncaptured)


program_p.def_abstract_eval(_abstract_eval_program)
mlir.register_lowering(program_p, _lower_program)
register_targets()

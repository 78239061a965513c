"""The custom call that carries a program: its names, and how it is emitted."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.export
import numpy as np
from jax.interpreters import mlir

from jax_graphenc import _core
from jax_graphenc.base.options import current as current_options
from jax_graphenc.calls.call import KernelCall
from jax_graphenc.programs import program
from jax_graphenc.programs.builder import ProgramBuilder

PROGRAM = "jax_graphenc.program"
UNCAPTURED_PROGRAM = "jax_graphenc.uncaptured_program"
"""Names of the custom call, without the version of the program's format."""

# Measured on an H200 (benchmarks/run.py threshold): where addresses repeat, XLA's command
# buffers cost a program less host time; where they move, each capture that is made anew costs it
# more, the more nodes it has.
_UNCAPTURED_NODES = 100


def export_checks() -> list[jax.export.DisabledSafetyCheck]:
    """What ``jax.export.export`` needs to be told to export a function that calls kernels.

    Pass it as ``disabled_checks=``. The process that loads the function needs
    ``import jax_graphenc``, and runs the kernels' native code that was saved with it.

    Returns:
        A check to disable for each of the package's custom calls.
    """
    check = jax.export.DisabledSafetyCheck.custom_call
    versions = range(1, _core.PROGRAM_VERSION + 1)
    return [check(f"{name}.v{n}") for n in versions for name in (PROGRAM, UNCAPTURED_PROGRAM)]


def register_targets() -> None:
    """Registers the custom call's handlers with XLA on every platform; opens no driver."""
    for name, platform, stages in _core.ffi_targets():
        jax.ffi.register_ffi_target(name, stages, platform=platform)


def program_of(
    call: KernelCall, kernel: program.Kernel, sizes: Sequence[int]
) -> tuple[program.Program, bool]:
    """A lone kernel's program, and whether it is kept out of XLA's command buffers.

    Args:
        call: the call.
        kernel: its compiled kernel.
        sizes: bytes of each operand.
    """
    builder = ProgramBuilder(call.label)
    made = builder.build(builder.launch(call, kernel, list(map(builder.argument, sizes))))
    return made, call.observed.uncaptured or stays_out(made)


def stays_out(made: program.Program) -> bool:
    """Whether a program leaves XLA's command buffers.

    By the option; if it is large, since our encoder replays it better; and if kernels write
    variables of a module, since XLA does not know that two such programs need an order.
    """
    images = {node.kernel.image for node in made.nodes if isinstance(node, program.Node)}
    return (
        len(made.nodes) >= _UNCAPTURED_NODES
        or not current_options().use_command_buffers
        or any(map(_core.has_variables, images))
    )


def emit(
    ctx: mlir.LoweringRuleContext,
    operands: Sequence[Any],
    made: program.Program,
    *,
    uncaptured: bool,
) -> Sequence[Any]:
    """Emits the custom call that carries a program; its scratch memory is no result of this."""
    name = UNCAPTURED_PROGRAM if uncaptured else PROGRAM
    rule = jax.ffi.ffi_lowering(
        f"{name}.v{made.version}", operand_output_aliases=dict(made.aliases)
    )
    avals_out: list[Any] = list(ctx.avals_out)
    if made.scratch is not None:
        avals_out.append(jax.core.ShapedArray((made.results[made.scratch],), np.dtype(np.uint8)))
    avals_in: list[Any] = list(ctx.avals_in)
    operands = list(operands)
    for argument, result in made.aliases:
        # A program tells no types from each other, and looks through views; XLA wants one type.
        given, wanted = avals_in[argument], avals_out[result]
        if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
            view = mlir.lower_fun(
                functools.partial(_viewed, shape=wanted.shape, dtype=wanted.dtype),
                multiple_results=False,
            )
            of_one = ctx.replace(avals_in=[given], avals_out=[wanted])
            [operands[argument]] = view(of_one, operands[argument])
            avals_in[argument] = wanted
    results: Sequence[Any] = rule(
        ctx.replace(avals_in=avals_in, avals_out=avals_out), *operands, program=made.encode()
    )
    return results[: len(ctx.avals_out)]


def _viewed(x: Any, shape: Sequence[int], dtype: Any) -> Any:
    x = x.reshape(shape)
    return x if x.dtype == dtype else jax.lax.bitcast_convert_type(x, dtype)

"""From a kernel call to a program, and from a program to XLA's custom call."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.export
import numpy as np
from jax.interpreters import mlir

from jax_graphenc import _core, program, sharding
from jax_graphenc.call import KernelCall
from jax_graphenc.compiled_call import compile_for
from jax_graphenc.program_builder import ProgramBuilder
from jax_graphenc.target import NoGpuError, target_of

PROGRAM = "jax_graphenc.program.v1"
UNCAPTURED_PROGRAM = "jax_graphenc.uncaptured_program.v1"

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
    return [check(PROGRAM), check(UNCAPTURED_PROGRAM)]


def register_targets() -> None:
    """Registers the custom call's handlers with XLA on every platform; opens no driver."""
    for name, platform, stages in _core.ffi_targets():
        jax.ffi.register_ffi_target(name, stages, platform=platform)


def lower_call(
    platform: str, ctx: mlir.LoweringRuleContext, *operands: Any, call: KernelCall, **_: Any
) -> Sequence[Any]:
    """The lowering rule of a lone kernel: a program of its own, or one for each part."""
    split = sharding.is_split(ctx, call)
    try:
        # A part asks for less memory. It is compiled here as well, so that errors are Python's own.
        whole = replace(call, shared_bytes=0) if split else call
        kernel = compile_for(whole, target_of(platform))
    except NoGpuError as error:
        raise RuntimeError(f"kernel '{call.label}' cannot be lowered for CUDA: {error}") from None
    if kernel is None:
        return _lower_reference(ctx, *operands, call=call)
    if split:
        return sharding.lower_split(ctx, operands, call)
    if call.sharding is None or call.sharding.splits:
        sharding.warn_of_gather(
            ctx,
            f"kernel '{call.label}'",
            "Name the dimensions that may be split in cuda_kernel(..., sharding=), with _ for "
            "those that may not, or call it inside jax.shard_map, where it sees each device's part",
        )
    made, uncaptured = program_of(call, kernel, ctx.avals_in)
    return emit(ctx, operands, made, uncaptured=uncaptured)


def program_of(
    call: KernelCall, kernel: program.Kernel, avals: Sequence[Any]
) -> tuple[program.Program, bool]:
    """A lone kernel's program, and whether it is kept out of XLA's command buffers."""
    builder = ProgramBuilder(call.label)
    made = builder.build(
        builder.launch(call, kernel, [builder.argument(size_of(aval)) for aval in avals])
    )
    return made, call.observed.uncaptured or is_large(made)


def is_large(made: program.Program) -> bool:
    """Whether our encoder replays a program better than XLA's command buffers, which it leaves."""
    return len(made.nodes) >= _UNCAPTURED_NODES


def emit(
    ctx: mlir.LoweringRuleContext,
    operands: Sequence[Any],
    made: program.Program,
    *,
    uncaptured: bool,
) -> Sequence[Any]:
    """Emits the custom call that carries a program; its scratch memory is no result of this."""
    rule = jax.ffi.ffi_lowering(
        UNCAPTURED_PROGRAM if uncaptured else PROGRAM, operand_output_aliases=dict(made.aliases)
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


def size_of(aval: Any) -> int:
    """Bytes of an array."""
    size: int = math.prod(aval.shape) * aval.dtype.itemsize
    return size


def _lower_reference(
    ctx: mlir.LoweringRuleContext, *operands: Any, call: KernelCall
) -> Sequence[Any]:
    results: Sequence[Any] = mlir.lower_fun(call.run_reference, multiple_results=True)(
        ctx, *operands
    )
    return results


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
    specs = sharding.result_specs(call, operands)
    varying = frozenset[Any]().union(*(aval.manual_axis_type.varying for aval in operands))
    return [
        jax.core.ShapedArray(
            shape,
            np.dtype(dtype),
            sharding=jax.sharding.NamedSharding(mesh, spec),
            manual_axis_type=jax.sharding.ManualAxisType(varying=varying),
        )
        for (shape, dtype), spec in zip(results, specs, strict=True)
    ]

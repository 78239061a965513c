"""From a kernel call to a program, and from a program to XLA's custom call."""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.export
import numpy as np
from jax.interpreters import mlir

from jax_graphenc import _core, program
from jax_graphenc.call import CallParameter, KernelCall
from jax_graphenc.compiler import Entry
from jax_graphenc.errors import (
    CompilerNotFoundError,
    LaunchLimitError,
    ReferenceUsedWarning,
    UnsupportedOnCpuError,
)
from jax_graphenc.signature import holds

PROGRAM = "jax_graphenc.program.v1"
UNCAPTURED_PROGRAM = "jax_graphenc.uncaptured_program.v1"

_POINTER_BYTES = 8


def export_checks() -> list[jax.export.DisabledSafetyCheck]:
    """What ``jax.export.export`` needs to be told to export a function that calls kernels.

    Pass it as ``disabled_checks=``. The process that loads the function needs
    ``import jax_graphenc``, and runs the kernels' native code that was saved with it.
    """
    check = jax.export.DisabledSafetyCheck.custom_call
    return [check(PROGRAM), check(UNCAPTURED_PROGRAM)]


def register_targets() -> None:
    """Registers the custom call's handlers with XLA on every platform; opens no driver."""
    for name, platform, stages in _core.ffi_targets():
        jax.ffi.register_ffi_target(name, stages, platform=platform)


def lower_call(
    platform: str, ctx: mlir.LoweringRuleContext, *operands: Any, call: KernelCall
) -> Sequence[Any]:
    """The lowering rule of a lone kernel: a program of one node."""
    if platform == "cpu" and call.cpu == "reference":
        return _lower_reference(ctx, *operands, call=call)
    try:
        info = _device_info(platform)
        check_device(call, info)
        made = build_program(call, ctx.avals_in, target_of(platform, info))
    except (CompilerNotFoundError, UnsupportedOnCpuError, LaunchLimitError) as error:
        if platform != "cpu" or call.reference is None or call.cpu == "source":
            raise
        # A compiler's first line only says that it failed.
        reason = next(line for line in str(error).splitlines() if not line.endswith(":"))
        warnings.warn(
            f"kernel '{call.label}' runs its reference on the CPU: {reason.partition('; ')[0]}",
            ReferenceUsedWarning,
            stacklevel=2,
        )
        return _lower_reference(ctx, *operands, call=call)
    except _NoGpuError as error:
        raise RuntimeError(f"kernel '{call.label}' cannot be lowered for CUDA: {error}") from None
    return emit(ctx, operands, made, uncaptured=call.uncaptured)


def emit(
    ctx: mlir.LoweringRuleContext,
    operands: Sequence[Any],
    made: program.Program,
    *,
    uncaptured: bool,
) -> Sequence[Any]:
    """Emits the custom call that carries a program."""
    rule = jax.ffi.ffi_lowering(
        UNCAPTURED_PROGRAM if uncaptured else PROGRAM, operand_output_aliases=dict(made.aliases)
    )
    results: Sequence[Any] = rule(ctx, *operands, program=made.encode())
    return results


def _lower_reference(
    ctx: mlir.LoweringRuleContext, *operands: Any, call: KernelCall
) -> Sequence[Any]:
    results: Sequence[Any] = mlir.lower_fun(call.run_reference, multiple_results=True)(
        ctx, *operands
    )
    return results


def build_program(call: KernelCall, operands: Sequence[Any], target: str) -> program.Program:
    """Compiles the kernel for a target (``"cpu"``, ``"sm_90a"``) and lays out its one node.

    Raises:
        KernelCompileError, CompilerNotFoundError: as the compiler does.
        TypeError: if the compiler sees other parameters than the call was made with.
    """
    image, entry = call.code.image(call.expression, target)
    if entry is not None:
        _check_entry(call, entry)
    argument_bytes = tuple(math.prod(aval.shape) * aval.dtype.itemsize for aval in operands)
    result_bytes = tuple(math.prod(shape) * dtype.itemsize for shape, dtype in call.results)

    parameters: list[program.Parameter] = []
    bindings: list[program.Buffer | bytes] = []
    argument = result = 0
    for p in call.parameters:
        pointer = p.role != "value"
        size = _POINTER_BYTES if pointer else len(p.value)
        parameters.append(
            program.Parameter(
                p.name, pointer, p.role in ("in", "inout"), p.role in ("out", "inout"), size
            )
        )
        if not pointer:
            bindings.append(p.value)
        elif p.role == "in":
            bindings.append(program.Buffer("argument", argument, 0, argument_bytes[argument]))
        else:
            bindings.append(program.Buffer("result", result, 0, result_bytes[result]))
        argument += p.role in ("in", "inout")
        result += p.role in ("out", "inout")

    kernel = program.Kernel(
        image, entry.symbol if entry else call.expression, call.label, tuple(parameters)
    )
    node = program.Node(
        kernel,
        call.grid,
        call.block,
        call.cluster,
        call.shared_bytes,
        call.cooperative,
        tuple(bindings),
    )
    launches = 0 not in call.grid
    return program.Program(
        call.label,
        argument_bytes,
        result_bytes,
        tuple(call.aliases().items()),
        (node,) if launches else (),
    )


def _check_entry(call: KernelCall, entry: Entry) -> None:
    """Holds the call against what the compiler says, which sees through every typedef."""
    if len(entry.types) != len(call.parameters):
        raise TypeError(
            f"kernel '{call.label}' has {len(entry.types)} parameters for the compiler "
            f"({', '.join(entry.types)}) and {len(call.parameters)} for the call: describe all "
            "of them with params="
        )
    for i, (p, seen) in enumerate(zip(call.parameters, entry.types, strict=True)):
        pointer = seen.endswith("*")
        if pointer != (p.role != "value"):
            suggestion = f"params={{'{p.name}': '{seen}'}}"
            raise TypeError(
                f"kernel '{call.label}': parameter '{p.name}' (declared {p.declared}) is "
                f"{'a pointer' if pointer else 'no pointer'} for the compiler, {seen}: "
                f"write {suggestion}"
            )
        if pointer:
            _check_pointee(call, p, seen)
        elif entry.sizes is not None and entry.sizes[i] != len(p.value):
            raise TypeError(
                f"kernel '{call.label}': parameter '{p.name}' is {seen}, {entry.sizes[i]} bytes, "
                f"for the compiler; the call gives {len(p.value)} bytes. Give a numpy value of "
                "that size, or a structured scalar for a struct"
            )


_CONST = re.compile(r"\bconst\b")


def _check_pointee(call: KernelCall, p: CallParameter, seen: str) -> None:
    pointee = _CONST.sub("", seen.removesuffix("*")).strip()
    if p.dtype is not None and not holds(pointee, p.dtype):
        raise TypeError(
            f"kernel '{call.label}': parameter '{p.name}' points to {pointee} for the compiler; "
            f"the array is {p.dtype}"
        )
    if _CONST.search(seen) and p.role in ("out", "inout"):
        raise TypeError(
            f"kernel '{call.label}': parameter '{p.name}' is {seen} for the compiler, which "
            f"cannot be written, and '{p.role}' in the call"
        )


def check_device(call: KernelCall, info: dict[str, Any]) -> None:
    """Refuses what this kind of device cannot launch, while the user's line is still known.

    The native part checks again, against the kernel's own needs, since a saved program may meet
    another device.

    Raises:
        LaunchLimitError: with the limit that is exceeded.
    """
    shared, cluster = info["shared_memory_per_block_optin"], math.prod(call.cluster)
    asks = f"kernel '{call.label}' asks for"
    if call.shared_bytes > shared:
        raise LaunchLimitError(
            f"{asks} shared_mem={call.shared_bytes} bytes; the limit on {info['name']} is {shared}"
        )
    if cluster > info["max_cluster"]:
        raise LaunchLimitError(
            f"{asks} clusters of {cluster} blocks; the limit on {info['name']} is "
            f"{info['max_cluster']}"
        )
    if call.cooperative and not info["cooperative_launch"]:
        raise LaunchLimitError(f"{asks} a cooperative launch, which {info['name']} does not have")


class _NoGpuError(RuntimeError):
    """This process has no GPU, or GPUs of different architectures; the message says what to do."""


@functools.cache
def _device_info(platform: str) -> dict[str, Any]:
    """What the devices of a platform have in common.

    Raises:
        _NoGpuError: if they have nothing in common.
    """
    if platform == "cpu":
        return _core.device_info("host", 0)
    try:
        gpus = jax.local_devices(backend="cuda")
    except RuntimeError as error:
        raise _NoGpuError(
            "that needs a machine with the GPU that the kernel will run on, for now, and JAX has "
            f"none here ({error})"
        ) from error
    infos = [_core.device_info("cuda", gpu.local_hardware_id) for gpu in gpus]
    found = sorted({(info["compute_major"], info["compute_minor"]) for info in infos})
    if len(found) != 1:
        raise _NoGpuError(
            "this process's GPUs have different compute capabilities "
            f"({', '.join(f'{a}.{b}' for a, b in found)}): make one kind visible with "
            "CUDA_VISIBLE_DEVICES"
        )
    return infos[0]


def target_of(platform: str, info: dict[str, Any]) -> str:
    """What to compile for: ``"cpu"``, or the architecture of a GPU."""
    if platform == "cpu":
        return "cpu"
    major, minor = info["compute_major"], info["compute_minor"]
    # The architecture-specific set is a superset on its own chip: wgmma and setmaxnreg need it.
    return f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")


def result_avals(call: KernelCall, operands: Sequence[Any]) -> list[jax.core.ShapedArray]:
    """Types of the outputs, which vary over the mesh axes that any operand varies over.

    Raises:
        TypeError: for an operand that is sharded over an explicit mesh axis.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return [jax.core.ShapedArray(shape, dtype) for shape, dtype in call.results]
    for p, aval in zip(call.operands(), operands, strict=True):
        if any(axis is not None for axis in aval.sharding.spec):
            raise TypeError(
                f"kernel '{call.label}': input '{p.name}' is sharded as {aval.sharding.spec} over "
                "explicit mesh axes, and a kernel takes whole arrays: call it inside "
                "jax.shard_map, where it sees each device's part"
            )
    varying = frozenset[Any]().union(*(aval.manual_axis_type.varying for aval in operands))
    return [
        jax.core.ShapedArray(
            shape,
            np.dtype(dtype),
            sharding=jax.sharding.NamedSharding(
                mesh, jax.sharding.PartitionSpec(*[None] * len(shape))
            ),
            manual_axis_type=jax.sharding.ManualAxisType(varying=varying),
        )
        for shape, dtype in call.results
    ]

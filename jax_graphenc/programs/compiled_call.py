"""A kernel call on one kind of device: compiled, and held against what the compiler saw."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from jax_graphenc.base.errors import (
    CompilerNotFoundError,
    LaunchLimitError,
    ReferenceUsedWarning,
    UnsupportedOnCpuError,
)
from jax_graphenc.base.tracebacks import warn
from jax_graphenc.calls.arguments import lanes
from jax_graphenc.calls.call import POINTER_BYTES, CallParameter, KernelCall
from jax_graphenc.compiler.source import Entry
from jax_graphenc.devices.target import Target
from jax_graphenc.programs import program
from jax_graphenc.signature.types import holds


def compile_for(call: KernelCall, target: Target) -> program.Kernel | None:
    """Compiles a call's kernel, and checks what this kind of device cannot launch.

    Returns:
        The kernel; ``None`` if the call's reference is to run in its place, on the CPU: because the
        call says so, or with a ``ReferenceUsedWarning``, because the source cannot run there.

    Raises:
        KernelCompileError, CompilerNotFoundError: as the compiler does.
        LaunchLimitError: with the limit of the device that is exceeded.
        TypeError: if the compiler sees other parameters than the call was made with.
        ValueError: for an array that is not made of whole vectors.
    """
    if target.platform == "cpu" and call.cpu == "reference":
        return None
    try:
        for info in target.infos:
            check_device(call, info)
        checked = target.platform == "cpu" and call.observed.checked
        return _compile(call, ("cpu-checked",) if checked else target.architectures)
    except (CompilerNotFoundError, UnsupportedOnCpuError, LaunchLimitError) as error:
        if target.platform != "cpu" or call.reference is None or call.cpu == "source":
            if isinstance(error, CompilerNotFoundError):
                raise CompilerNotFoundError(f"kernel '{call.label}': {error}") from None
            raise
        # A compiler's first line only says that it failed.
        reason = next(line for line in str(error).splitlines() if not line.endswith(":"))
        warn(
            f"kernel '{call.label}' runs its reference on the CPU: {reason.partition('; ')[0]} "
            "(cpu='reference' says that this is wanted)",
            ReferenceUsedWarning,
        )
        return None


def _compile(call: KernelCall, architectures: Sequence[str]) -> program.Kernel:
    image, entry = call.code.image(call.expression, architectures)
    if entry is not None:
        _check_entry(call, entry)
    return program.Kernel(
        image,
        entry.symbol if entry else call.expression,
        call.label,
        tuple(_parameter(call, p) for p in call.parameters if p.member is None),
        _members(call),
    )


def _parameter(call: KernelCall, p: CallParameter) -> program.Parameter:
    size = POINTER_BYTES if p.has_array else len(p.value)
    return program.Parameter(p.name, p.has_array, *_access(call, p), size)


def _members(call: KernelCall) -> tuple[program.Member, ...]:
    """The pointers in structs, of which an absent one is null in the struct's bytes."""
    places = [p.name for p in call.parameters if p.member is None]
    return tuple(
        program.Member(places.index(p.member.of), p.member.offset, p.name, *_access(call, p))
        for p in call.parameters
        if p.member is not None and p.has_array
    )


def _access(call: KernelCall, p: CallParameter) -> tuple[bool, bool]:
    """Whether the kernel reads and writes a parameter's memory."""
    # What is zeroed beforehand is read: the kernel adds to it.
    reads = p.role in ("in", "inout") or p.name in call.zero_init
    return reads, p.role in ("out", "inout", "scratch")


def _check_entry(call: KernelCall, entry: Entry) -> None:
    """Holds the call against what the compiler says, which sees through every typedef."""
    parameters = [p for p in call.parameters if p.member is None]
    if len(entry.types) != len(parameters):
        raise TypeError(
            f"kernel '{call.label}' has {len(entry.types)} parameters for the compiler "
            f"({', '.join(entry.types)}) and {len(parameters)} for the call: describe all "
            "of them with params="
        )
    for i, (p, seen) in enumerate(zip(parameters, entry.types, strict=True)):
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
            f"the array is {p.dtype}: correct params=, or convert the array"
        )
    if p.dtype is not None and (of := lanes(pointee, p.size, p.dtype)):
        raise ValueError(
            f"kernel '{call.label}': parameter '{p.name}' points to {pointee} for the compiler, "
            f"{of} elements of {p.dtype} each; the array's size, {p.size}, is no multiple of {of}"
        )
    if _CONST.search(seen) and p.role in ("out", "inout", "scratch"):
        raise TypeError(
            f"kernel '{call.label}': parameter '{p.name}' is {seen} for the compiler, which "
            f"cannot be written, and '{p.role}' in the call: say 'in' in params=, or drop the const"
        )


def check_device(call: KernelCall, info: dict[str, Any]) -> None:
    """Refuses what this kind of device cannot launch, while the user's line is still known.

    The native part checks again, against the kernel's own needs, since a saved program may meet
    another device. What ``info`` does not have is not known here, and left to it.

    Raises:
        LaunchLimitError: with the limit that is exceeded.
    """
    shared = info.get("shared_memory_per_block_optin", math.inf)
    cluster = math.prod(call.cluster)
    asks = f"kernel '{call.label}' asks for"
    shown = (
        f"(grid={call.grid}, block={call.block}, cluster={call.cluster}, "
        f"shared_mem={call.shared_bytes})"
    )
    instead = "; reference= would run there instead" if info.get("driver") == "host" else ""
    if call.shared_bytes > shared:
        raise LaunchLimitError(
            f"{asks} shared_mem={call.shared_bytes} bytes; the limit on {info['name']} is {shared} "
            f"{shown}{instead}"
        )
    if cluster > info.get("max_cluster", math.inf):
        raise LaunchLimitError(
            f"{asks} clusters of {cluster} blocks; the limit on {info['name']} is "
            f"{info['max_cluster']} {shown}{instead}"
        )
    if call.cooperative and not info.get("cooperative_launch", True):
        raise LaunchLimitError(
            f"{asks} a cooperative launch, which {info['name']} does not have{instead}"
        )

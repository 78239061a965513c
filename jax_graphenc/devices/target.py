"""The devices that a lowered call is compiled for."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Literal

import jax

from jax_graphenc import _core
from jax_graphenc.base.notebooks import EndsInCell
from jax_graphenc.base.options import current as current_options


@dataclass(frozen=True, slots=True)
class Target:
    """The kinds of device that one image runs on.

    Attributes:
        platform: JAX's name.
        architectures: ``("cpu",)``, ``("sm_80", "sm_90a")``.
        infos: the known limits of each, as the native part reports them.
    """

    platform: Literal["cpu", "cuda"]
    architectures: tuple[str, ...]
    infos: tuple[dict[str, Any], ...] = field(compare=False)


class NoGpuError(EndsInCell, RuntimeError):
    """This process has no GPU, or GPUs of different architectures; the message says what to do."""


def target_of(platform: str) -> Target:
    """The target of a call that is lowered for a platform.

    Raises:
        NoGpuError: if this process has no GPU, or GPUs of several architectures, and
            ``options(cuda_targets=)`` is empty.
    """
    if platform == "cuda" and (names := current_options().cuda_targets):
        return Target("cuda", names, tuple(_limits_of(name) for name in names))
    return _devices_of(platform)


@functools.cache
def _devices_of(platform: str) -> Target:
    if platform == "cpu":
        return Target("cpu", ("cpu",), (_core.device_info("host", 0),))
    try:
        gpus = jax.local_devices(backend="cuda")
    except RuntimeError as error:
        raise NoGpuError(
            "JAX has no GPU here to compile for; name what the kernel will run on, as in "
            f"jge.options(cuda_targets='sm_90a') ({error})"
        ) from error
    infos = [_core.device_info("cuda", gpu.local_hardware_id) for gpu in gpus]
    found = sorted({(info["compute_major"], info["compute_minor"]) for info in infos})
    if len(found) != 1:
        names = ",".join(sorted({architecture(info) for info in infos}))
        raise NoGpuError(
            "this process's GPUs have different compute capabilities "
            f"({', '.join(f'{a}.{b}' for a, b in found)}): make one kind visible with "
            f"CUDA_VISIBLE_DEVICES, or compile for all with jge.options(cuda_targets='{names}')"
        )
    return Target("cuda", (architecture(infos[0]),), (infos[0],))


# The most shared memory of a block, in KB, by compute capability (CUDA C++ programming guide,
# table "Technical Specifications per Compute Capability").
_SHARED_KB = {75: 64, 80: 163, 86: 99, 87: 163, 88: 99, 89: 99, 90: 227, 100: 227, 103: 227}
_SHARED_KB |= {110: 227, 120: 99, 121: 99}
_PORTABLE_CLUSTER = 8


def _limits_of(name: str) -> dict[str, Any]:
    """The limits shared by all devices that run code for an architecture."""
    kind, _, number = name.partition("_")
    if kind != "sm":
        return {"name": name}  # PTX also runs on future devices
    capability = int(number.rstrip("af"))
    limits: dict[str, Any] = {
        "name": name,
        "max_cluster": _PORTABLE_CLUSTER if capability >= 90 else 1,
        "cooperative_launch": True,
        "compute_major": capability // 10,
        "compute_minor": capability % 10,
    }
    if capability in _SHARED_KB:
        limits["shared_memory_per_block_optin"] = _SHARED_KB[capability] * 1024
    return limits


def architecture(info: dict[str, Any]) -> str:
    """The architecture of a GPU."""
    major, minor = info["compute_major"], info["compute_minor"]
    # wgmma and setmaxnreg need the architecture-specific instruction set.
    return f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")

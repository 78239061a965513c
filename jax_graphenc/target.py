"""What kernels are compiled for: the devices that a call is lowered for."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Literal

import jax

from jax_graphenc import _core


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of device.

    Attributes:
        platform: as JAX calls it.
        architecture: what to compile for: ``"cpu"``, ``"sm_90a"``.
        info: what such devices have in common, as the native part tells it.
    """

    platform: Literal["cpu", "cuda"]
    architecture: str
    info: dict[str, Any] = field(compare=False)


class NoGpuError(RuntimeError):
    """This process has no GPU, or GPUs of different architectures; the message says what to do."""


@functools.cache
def target_of(platform: str) -> Target:
    """The devices of a platform in this process.

    Raises:
        NoGpuError: if they have nothing in common.
    """
    if platform == "cpu":
        return Target("cpu", "cpu", _core.device_info("host", 0))
    try:
        gpus = jax.local_devices(backend="cuda")
    except RuntimeError as error:
        raise NoGpuError(
            "that needs a machine with the GPU that the kernel will run on, for now, and JAX has "
            f"none here ({error})"
        ) from error
    infos = [_core.device_info("cuda", gpu.local_hardware_id) for gpu in gpus]
    found = sorted({(info["compute_major"], info["compute_minor"]) for info in infos})
    if len(found) != 1:
        raise NoGpuError(
            "this process's GPUs have different compute capabilities "
            f"({', '.join(f'{a}.{b}' for a, b in found)}): make one kind visible with "
            "CUDA_VISIBLE_DEVICES"
        )
    return Target("cuda", architecture(infos[0]), infos[0])


def architecture(info: dict[str, Any]) -> str:
    """The architecture of a GPU."""
    major, minor = info["compute_major"], info["compute_minor"]
    # The architecture-specific set is a superset on its own chip: wgmma and setmaxnreg need it.
    return f"sm_{major}{minor}" + ("a" if (major, minor) == (9, 0) else "")

"""``device_info``: a device's limits, and the largest batch of nodes that it is given."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, fields
from typing import Any

import jax

from jax_graphenc import _core
from jax_graphenc.base.notebooks import ShownAsText
from jax_graphenc.base.shapes import Dim3
from jax_graphenc.base.tracebacks import ends_at_caller


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """The limits at which a batch of nodes is committed.

    Attributes:
        max_ops: nodes per batch.
        max_mb: megabytes (10^6 bytes) of distinct buffers per batch.
        ops_source: the origin of ``max_ops``: ``"table"`` (by compute capability) or ``"option"``.
        mb_source: the origin of ``max_mb``, likewise.
    """

    max_ops: int
    max_mb: int
    ops_source: str
    mb_source: str


@dataclass(frozen=True, slots=True)
class DeviceInfo(ShownAsText):
    """A device, as its driver describes it.

    Attributes:
        ordinal: its number in the driver's order.
        driver: ``"cuda"``, or ``"host"`` for the software driver that runs kernels on the CPU.
        name: the driver's name for it.
        compute_capability: major and minor; ``(0, 0)`` for ``"host"``.
        multiprocessors: streaming multiprocessors.
        warp_size: threads in a warp.
        clock_khz: peak clock rate in kHz; 0 where the driver does not report it.
        memory_clock_khz: peak clock rate of the memory, likewise.
        memory_total: bytes of memory.
        memory_free: bytes of free memory.
        l2_bytes: bytes of L2 cache.
        shared_memory_per_block: bytes of shared memory that a block gets by default.
        shared_memory_per_block_optin: bytes that a block gets at most (``shared_mem=``).
        shared_memory_per_multiprocessor: bytes for all blocks of a multiprocessor.
        registers_per_block: 32-bit registers of a block, at most.
        registers_per_multiprocessor: 32-bit registers of a multiprocessor.
        max_threads_per_block: threads in the largest block.
        max_threads_per_multiprocessor: resident threads of a multiprocessor, at most.
        max_block: threads in each dimension of a block, at most.
        max_grid: blocks in each dimension of a grid, at most.
        max_cluster: blocks in the largest portable thread block cluster; 1 without clusters.
        cooperative_launch: whether the device supports cooperative launches.
        concurrent_managed_access: whether CPU and device may access managed memory at once.
        host_native_atomics: whether atomics work between device and CPU.
        managed_memory: whether managed memory can be allocated.
        memory_pools: whether stream-ordered allocation is supported.
        driver_version: the newest CUDA version that the driver supports, ``(13, 0)``.
        compiler_version: NVRTC's version, or ``None`` if NVRTC is not installed.
        graph_limits: the limits in force.
    """

    ordinal: int
    driver: str
    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    warp_size: int
    clock_khz: int
    memory_clock_khz: int
    memory_total: int
    memory_free: int
    l2_bytes: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    registers_per_block: int
    registers_per_multiprocessor: int
    max_threads_per_block: int
    max_threads_per_multiprocessor: int
    max_block: Dim3
    max_grid: Dim3
    max_cluster: int
    cooperative_launch: bool
    concurrent_managed_access: bool
    host_native_atomics: bool
    managed_memory: bool
    memory_pools: bool
    driver_version: tuple[int, int]
    compiler_version: tuple[int, int] | None
    graph_limits: GraphLimits

    def __str__(self) -> str:
        if self.driver == "host":
            first = f"{self.name}: no GPU; kernels run on the CPU, through the software driver"
        else:
            major, minor = self.compute_capability
            first = (
                f"{self.name} (device {self.ordinal}, compute capability {major}.{minor}, "
                f"{self.multiprocessors} multiprocessors)"
            )
        rows = [
            ("memory", f"{self.memory_free / 1e9:.1f} of {self.memory_total / 1e9:.1f} GB free"),
            ("L2 cache", f"{self.l2_bytes / 1e6:.1f} MB"),
            (
                "shared memory per block",
                f"{self.shared_memory_per_block / 1024:.0f} KB, "
                f"{self.shared_memory_per_block_optin / 1024:.0f} KB opted in",
            ),
            ("registers per block", str(self.registers_per_block)),
            ("block, grid, cluster", f"{self.max_block}, {self.max_grid}, {self.max_cluster}"),
            (
                "graph limits",
                f"{self.graph_limits.max_ops} nodes ({self.graph_limits.ops_source}), "
                f"{self.graph_limits.max_mb} MB ({self.graph_limits.mb_source})",
            ),
            ("driver", f"{self.driver}, CUDA {_version(self.driver_version)}"),
            (
                "NVRTC",
                _version(self.compiler_version) if self.compiler_version else "not installed",
            ),
        ]
        return "\n".join([first, *(f"  {name:<24}{value}" for name, value in rows)])


@ends_at_caller
def device_info(device: jax.Device | None = None) -> DeviceInfo:
    """Describes a JAX device.

    Args:
        device: one of ``jax.devices()``; the first by default.

    Raises:
        RuntimeError: for a GPU with an unusable driver; the message says why.
        TypeError: if ``device`` is not a JAX device.
        ValueError: for a device that is neither CUDA nor CPU.
    """
    device = device if device is not None else jax.devices()[0]
    if not isinstance(device, jax.Device):
        raise TypeError(f"device_info: one of jax.devices() is expected; got {device!r}")
    return _described(_core.device_info(driver_of(device), device.local_hardware_id or 0))


_SWITCHES = (
    "cooperative_launch",
    "concurrent_managed_access",
    "host_native_atomics",
    "managed_memory",
    "memory_pools",
)


def _described(raw: dict[str, Any]) -> DeviceInfo:
    """What the native part reports, by the names of the fields."""
    capability = raw["compute_major"], raw["compute_minor"]
    same = {field.name: raw[field.name] for field in fields(DeviceInfo) if field.name in raw}
    return DeviceInfo(
        **{
            **same,
            **{name: bool(raw[name]) for name in _SWITCHES},
            "compute_capability": capability,
            "max_block": (raw["max_block_x"], raw["max_block_y"], raw["max_block_z"]),
            "max_grid": (raw["max_grid_x"], raw["max_grid_y"], raw["max_grid_z"]),
            "driver_version": (raw["driver_version"] // 1000, raw["driver_version"] % 1000 // 10),
            "compiler_version": _compiler_version(),
            "graph_limits": GraphLimits(**_core.graph_limits(*capability)),
        }
    )


@ends_at_caller
def graph_limits(device: jax.Device | None = None) -> GraphLimits:
    """The graph limits in force on a device; see ``device_info``."""
    return device_info(device).graph_limits


def driver_of(device: jax.Device) -> str:
    """The driver that runs a device: ``"cuda"`` or ``"host"``.

    Raises:
        ValueError: for a device of another platform.
    """
    if device.platform == "cpu":
        return "host"
    if device.platform in ("gpu", "cuda"):
        return "cuda"
    raise ValueError(f"{device} is on platform {device.platform}; 'cuda' or 'cpu' is expected")


def _compiler_version() -> tuple[int, int] | None:
    from jax_graphenc.base.errors import CompilerNotFoundError
    from jax_graphenc.compiler import nvrtc_library

    if importlib.util.find_spec("cuda") is None:
        return None
    try:
        return nvrtc_library.version()
    except CompilerNotFoundError:
        return None


def _version(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))

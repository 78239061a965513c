"""growth.py: what the process holds, and whether that grows."""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import machine

MB = 1 << 20
# What the end may hold more than the middle, in bytes or in number.
ALLOWED = {
    "memory": 48 * MB,
    "device memory": 32 * MB,
    "descriptors": 2,
    "threads": 2,
    "maps": 100,
}

Sample = dict[str, int]


def sample() -> Sample:
    """What the process holds that it cannot give back."""
    gc.collect()
    machine.release_memory()
    ctypes.CDLL(None).malloc_trim(0)
    status = dict(line.split(":", 1) for line in _read("status").splitlines())
    held = {
        "memory": int(status["VmRSS"].split()[0]) * 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "maps": _read("maps").count("\n"),
    }
    if not machine.ON_CPU:
        held["device memory"] = device_memory()
    return held


def device_memory() -> int:
    """Bytes of the GPU that are in use, as its driver says."""
    from cuda.bindings import driver

    _, device = driver.cuDeviceGet(machine.DEVICE.local_hardware_id)
    _, context = driver.cuDevicePrimaryCtxRetain(device)
    driver.cuCtxPushCurrent(context)
    _, free, total = driver.cuMemGetInfo()
    driver.cuCtxPopCurrent()
    driver.cuDevicePrimaryCtxRelease(device)
    return total - free


def _read(name: str) -> str:
    return Path("/proc/self", name).read_text()


def growth(samples: Sequence[Sample]) -> dict[str, int]:
    """By how much the last third of the samples holds more than the third before it."""
    third = len(samples) // 3
    middle, end = samples[third : 2 * third], samples[2 * third :]
    return {
        name: int(
            statistics.median(s[name] for s in end) - statistics.median(s[name] for s in middle)
        )
        for name in samples[0]
    }


def too_much(grown: dict[str, int]) -> list[str]:
    """What has grown by more than is allowed, in words."""
    return [
        f"{name} grew by {show(name, by)} between the middle and the end; "
        f"{show(name, ALLOWED[name])} are allowed"
        for name, by in grown.items()
        if by > ALLOWED[name]
    ]


def show(name: str, value: int) -> str:
    """A value of a sample, with its unit."""
    return f"{value / MB:.0f} MB" if "memory" in name else str(value)

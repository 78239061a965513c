"""``info``: versions, devices and options."""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import json
import os
import platform
import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from typing import Any

import jax
from rich.text import Text

from jax_graphenc import _core
from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.base.options import Options, current, origin
from jax_graphenc.cli.console import output, print_row
from jax_graphenc.compiler import cxx, fatbin, nvcc, nvrtc_library
from jax_graphenc.devices.device_info import device_info

_PACKAGES = ("jax_graphenc", "jax", "jaxlib", "numpy", "cuda-bindings")
# Variables of others that change where and how kernels are compiled and run.
_VARIABLES = (
    *("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"),
    *("JAX_GRAPHENC_CXX", "CXX", "CUDA_HOME", "CUDA_PATH"),
)


def add_parser(subparsers: Any) -> None:
    """Adds the command's parser."""
    parser = subparsers.add_parser(
        "info",
        help="versions, devices and their limits, options and where each came from",
        description="Shows versions, devices and their limits, and the options in force.",
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints everything."""
    if arguments.json:
        print(json.dumps(collect(), indent=2, default=str))
        return 0
    console = output()
    for title, rows in _sections():
        if not rows:
            continue
        console.print(Text(title, style="bold"))
        for name, value, remark in rows:
            row = Text(value).append(f"  {remark}" if remark else "", style="dim")
            print_row(console, f"  {name}", row, widths=(22,))
        console.print()
    console.print(Text("devices", style="bold"))
    for device in devices():
        print_row(console, f"{device}: {device_info(device)}", widths=())
    if not devices():
        console.print("  none; `python -m jax_graphenc doctor` says why")
    return 0


def collect() -> dict[str, Any]:
    """Versions, options, environment and devices, in types of JSON and paths.

    Returns:
        ``versions`` by name, ``None`` if not installed; ``devices``, each a ``device_info`` with
        JAX's name as ``jax_device``; ``options``, each with ``value`` and ``from``;
        ``environment``, the variables that are set.
    """
    return {
        "versions": versions(),
        "options": {
            field.name: {"value": getattr(current(), field.name), "from": origin(field.name)}
            for field in fields(Options)
        },
        "environment": environment(),
        "devices": [{"jax_device": str(d), **asdict(device_info(d))} for d in devices()],
    }


def versions() -> dict[str, str | None]:
    """Versions by name, ``None`` if not installed. Opens the driver."""
    return {
        **{
            name: _or_none(functools.partial(importlib.metadata.version, name))
            for name in _PACKAGES
        },
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cuda_driver": cuda_driver(),
        "nvrtc": _or_none(lambda: _dotted(nvrtc_library.version())),
        "nvfatbin": _or_none(lambda: _dotted(fatbin.version())),
        "nvcc": None if (path := nvcc.find()) is None else f"{nvcc.version_of(path)}, {path}",
        "cpu_compiler": _or_none(_cpu_compiler),
    }


def environment() -> dict[str, str]:
    """The variables in ``_VARIABLES`` that are set."""
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def devices() -> list[jax.Device]:
    """This process's GPUs and its first CPU, which stands for all of them."""
    found: list[jax.Device] = []
    for backend, count in ("cuda", None), ("cpu", 1):
        try:
            found += jax.local_devices(backend=backend)[:count]
        except (RuntimeError, AssertionError):  # AssertionError: no backend at all
            continue
    return found


def cuda_driver() -> str | None:
    """The newest CUDA that the NVIDIA driver supports, or None without a driver."""
    if _core.why_no_cuda():
        return None
    version = _core.device_info("cuda", 0)["driver_version"]
    return _dotted((version // 1000, version % 1000 // 10))


def _cpu_compiler() -> str:
    command = cxx.find_compiler()
    return f"{cxx.version_of(command)}, {shlex.join(command)}"


def _or_none(version: Callable[[], str]) -> str | None:
    try:
        return version()
    except (CompilerNotFoundError, importlib.metadata.PackageNotFoundError):
        return None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _sections() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Titles, each with rows of a name, a value and a remark."""
    yield "versions", [(name, value or "not found", "") for name, value in versions().items()]
    names = [field.name for field in fields(Options)]
    yield "options", [(name, str(getattr(current(), name)), f"({origin(name)})") for name in names]
    yield "environment", [(name, value, "") for name, value in environment().items()]

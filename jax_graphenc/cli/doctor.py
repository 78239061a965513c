"""``doctor``: whether kernels can be compiled and run here, and what to do where not."""

from __future__ import annotations

import argparse
import difflib
import os
import pwd
import shlex
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from rich.console import Console
from rich.text import Text

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.base.options import ENVIRONMENT_PREFIX, Options, origin
from jax_graphenc.base.options import current as current_options
from jax_graphenc.cli.console import output, print_row, progress
from jax_graphenc.cli.info import cuda_driver, devices, versions
from jax_graphenc.compiler import cache, cxx, fatbin, nvcc, nvrtc_library
from jax_graphenc.compiler.cuda_headers import toolkit_headers
from jax_graphenc.programs import custom_call

_STYLES = {"ok": "green", "note": "yellow", "fail": "bold red"}
_WITH_CUDA = 'pip install "jax_graphenc[cuda13]"'
_NVRTC_WITH_HEADERS = (13, 3)

# Threads wait for each other, so that a CPU has to switch between them.
_REVERSE = r"""
extern "C" __global__ void reverse(const int* x, int* out) {
  __shared__ int all[64];
  all[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}
"""


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at and found.

    Attributes:
        name: what was looked at.
        state: ``"ok"``; ``"note"`` for what not everybody needs; ``"fail"`` for what should work.
        found: in a sentence.
        advice: what to do, where there is something.
    """

    name: str
    state: Literal["ok", "note", "fail"]
    found: str
    advice: str = ""


def add_parser(subparsers: Any) -> None:
    """Adds the command's parser."""
    parser = subparsers.add_parser(
        "doctor",
        help="checks whether kernels can be compiled and run here, and says what to do",
        description="Checks driver, compilers and cache, and runs a kernel on each device. The "
        "exit status is 0 if kernels run: on all GPUs that JAX has, or without one on the CPU.",
    )
    parser.set_defaults(run=run, parser=parser)


def run(_: argparse.Namespace) -> int:
    """Prints each check as it is made, then what they come to."""
    console = output()
    failures = 0
    for check in _what_is_installed():
        _print(console, check)
        failures += check.state == "fail"
    found = devices()
    needed = [device for device in found if device.platform != "cpu"] or found
    runs = {}
    for device in found:
        check = _run_on(device, needed=device in needed)
        _print(console, check)
        failures += check.state == "fail"
        runs[device] = check.state == "ok"
    usable = bool(needed) and all(runs[device] for device in needed)
    console.print()
    console.print(_verdict(runs, usable, failures))
    return 0 if usable else 1


def _verdict(runs: dict[jax.Device, bool], usable: bool, failures: int) -> Text:
    places = ", ".join(_name(device) for device, ran in runs.items() if ran)
    text = f"Kernels run on {places}." if places else "Kernels do not run here."
    if places and not usable:
        text += " They do not run on every GPU."
    if failures:
        text += f" {failures} check{'s' * (failures > 1)} failed: see what to do above."
    return Text(text, style="bold" if usable else _STYLES["fail"])


def _print(console: Console, check: Check) -> None:
    text = Text(check.found)
    if check.advice:
        text.append(f"\nto do: {check.advice}", style="bold" if check.state == "fail" else "")
    state = Text(check.state, style=_STYLES[check.state])
    print_row(console, state, check.name, text, widths=(4, 12))


def _name(device: jax.Device) -> str:
    return "the CPU" if device.platform == "cpu" else str(device)


def _what_is_installed() -> Iterator[Check]:
    with progress("looking at what is installed"):
        found = versions()
    yield Check(
        "package",
        "ok",
        f"jax_graphenc {found['jax_graphenc']}, jax {found['jax']}, jaxlib {found['jaxlib']}, "
        f"Python {found['python']}, {Path(jge.__file__).parent}",
    )
    yield from _variables()
    yield _jax()
    has_gpu = any(device.platform != "cpu" for device in devices())
    yield _driver(has_gpu)
    yield _nvrtc(has_gpu)
    yield _nvfatbin()
    yield _nvcc()
    yield _headers()
    yield _cpu_compiler(has_gpu)
    yield _cache()
    yield _custom_calls()


def _variables() -> Iterator[Check]:
    """What looks like a setting of ours and is none, such as a misspelled one."""
    known = {ENVIRONMENT_PREFIX + field.name.upper() for field in fields(Options)}
    known.add("JAX_GRAPHENC_CXX")
    for name in sorted(os.environ):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            advice = f"perhaps {near[0]} was meant" if near else "`info` shows the options"
            yield Check("variables", "note", f"{name} is set, and nothing reads it", advice)


def _jax() -> Check:
    try:
        with progress("starting JAX"):
            names = ", ".join(map(str, jax.local_devices()))
    except (RuntimeError, AssertionError) as error:  # The latter, if it has no backend at all.
        advice = _unset_platforms() or "install JAX anew"
        return Check("JAX", "fail", f"JAX cannot start a backend. {error}".strip(), advice)
    return Check("JAX", "ok", f"devices {names}")


def _driver(has_gpu: bool) -> Check:
    reason = _core.why_no_cuda()
    if reason and has_gpu:
        return Check("driver", "fail", reason, "update the driver")
    if reason:
        return Check("driver", "note", f"no GPU here ({reason}): kernels run on the CPU")
    found = f"CUDA {cuda_driver()}"
    if has_gpu:
        return Check("driver", "ok", found)
    advice = _unset_platforms() or _WITH_CUDA
    return Check("driver", "note", f"{found}, but JAX has no GPU: kernels run on the CPU", advice)


def _unset_platforms() -> str:
    chosen = os.environ.get("JAX_PLATFORMS")
    return f"unset JAX_PLATFORMS, which is {chosen!r}" if chosen else ""


def _nvrtc(has_gpu: bool) -> Check:
    try:
        major, minor = nvrtc_library.version()
    except CompilerNotFoundError as error:
        if nvcc.find() is not None:
            return Check("NVRTC", "note", f"nvcc compiles for GPUs instead: {error}")
        return Check("NVRTC", "fail" if has_gpu else "note", _first_line(error), _WITH_CUDA)
    return Check("NVRTC", "ok", f"{major}.{minor}")


def _nvfatbin() -> Check:
    try:
        major, minor = fatbin.version()
    except CompilerNotFoundError as error:
        return Check("nvFatbin", "note", str(error))
    return Check("nvFatbin", "ok", f"{major}.{minor}")


def _nvcc() -> Check:
    path = nvcc.find()
    if path is None:
        what = "not found; only what NVRTC cannot compile needs it, such as <cub/cub.cuh>"
        return Check("nvcc", "note", what)
    version = nvcc.version_of(path)
    if version == "nvcc":
        return Check(
            "nvcc", "note", f"{path} does not say its version", "install CUDA's toolkit anew"
        )
    return Check("nvcc", "ok", f"{version}, {path}")


def _headers() -> Check:
    folders = toolkit_headers()
    if folders:
        return Check("CUDA headers", "ok", ", ".join(map(str, folders)))
    try:
        if nvrtc_library.version() >= _NVRTC_WITH_HEADERS:
            return Check("CUDA headers", "ok", "those that NVRTC brings along")
    except CompilerNotFoundError:
        pass
    what = "not found; only kernels for GPUs that include them need them, such as <cuda_fp16.h>"
    return Check("CUDA headers", "note", what, "pip install nvidia-cuda-runtime")


def _cpu_compiler(has_gpu: bool) -> Check:
    state: Literal["note", "fail"] = "note" if has_gpu else "fail"
    try:
        command = cxx.find_compiler()
        version = cxx.version_of(command)
    except CompilerNotFoundError as error:
        found, _, advice = str(error).rpartition("; ")
        return Check("C++ compiler", state, found, advice)
    return Check("C++ compiler", "ok", f"{version}, {shlex.join(command)}")


def _cache() -> Check:
    folder = current_options().cache_dir
    if folder is None:
        found = f"switched off ({origin('cache_dir')}): kernels are compiled in every process"
        return Check("cache folder", "note", found)
    reason = cache.why_not(folder)
    if reason is not None:
        return Check(
            "cache folder",
            "fail",
            f"not used, so kernels are compiled in every process: {reason}",
            f"remove it (rm -r {shlex.quote(str(folder))}) and it is made anew, or set "
            "JAX_GRAPHENC_CACHE_DIR to a folder of your own. Do not keep what others may have "
            "written there: it is code that runs.",
        )
    count, size = cache.entries(folder)
    status = folder.stat()
    return Check(
        "cache folder",
        "ok",
        f"{folder}: {size / 1e6:.1f} MB in {count} files, owner {_user(status.st_uid)}, mode "
        f"{stat.S_IMODE(status.st_mode):04o}, writable",
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _custom_calls() -> Check:
    targets = _core.ffi_targets()
    try:
        # Once more, now that JAX has started: XLA takes the same handler twice, but no other one.
        custom_call.register_targets()
    except Exception as error:
        advice = "load one version of jax_graphenc only, and reinstall it together with jax"
        return Check("custom calls", "fail", f"XLA refuses them: {_first_line(error)}", advice)
    names = dict.fromkeys(name for name, _, _ in targets)
    return Check("custom calls", "ok", f"registered with XLA: {', '.join(names)}")


def _run_on(device: jax.Device, *, needed: bool) -> Check:
    """Compiles a kernel and runs it."""
    name = "CPU" if device.platform == "cpu" else str(device)
    state: Literal["note", "fail"] = "fail" if needed else "note"
    reverse = jge.cuda_kernel(_REVERSE, "reverse", out_shape=lambda x: x, grid=1, block=64)
    x = np.arange(64, dtype=np.int32)
    start = time.perf_counter()
    try:
        # Without the cache, so that the compiler has to work.
        with progress(f"compiling a kernel for {_name(device)}"), jge.options(cache_dir=None):
            out = np.asarray(reverse(jax.device_put(x, device)))
    except CompilerNotFoundError:
        return Check(name, state, "no kernel can run: there is no compiler, as said above")
    except Exception as error:  # Whatever it is, it is what was looked for.
        return Check(name, state, f"no kernel can run: {type(error).__name__}: {error}")
    if not np.array_equal(out, x[::-1]):
        return Check(name, "fail", f"a kernel ran, but its result is wrong: {out.tolist()}")
    model = jge.device_info(device).name
    seconds = time.perf_counter() - start
    return Check(name, "ok", f"{model}: a kernel was compiled and run in {seconds:.1f} s")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

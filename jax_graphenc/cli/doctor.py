"""``doctor``: checks whether kernels compile and run here, and says what to do if not."""

from __future__ import annotations

import argparse
import time
from typing import Any, Literal

import jax
import numpy as np
from rich.console import Console
from rich.text import Text

import jax_graphenc as jge
from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.cli.checks import Check, installed
from jax_graphenc.cli.console import output, print_row, progress
from jax_graphenc.cli.info import devices

_STYLES = {"ok": "green", "note": "yellow", "fail": "bold red"}

# A barrier makes a CPU switch between threads.
_REVERSE = r"""
extern "C" __global__ void reverse(const int* x, int* out) {
  __shared__ int all[64];
  all[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}
"""


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
    """Prints each check at once, then the verdict."""
    console = output()
    failures = 0

    def show(check: Check) -> bool:
        nonlocal failures
        _print(console, check)
        failures += check.state == "fail"
        return check.state == "ok"

    for check in installed():
        show(check)
    found = devices()
    needed = [device for device in found if device.platform != "cpu"] or found
    runs = {device: show(_run_on(device, needed=device in needed)) for device in found}
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


def _run_on(device: jax.Device, *, needed: bool) -> Check:
    """Compiles a kernel and runs it."""
    name = "CPU" if device.platform == "cpu" else str(device)
    state: Literal["note", "fail"] = "fail" if needed else "note"
    reverse = jge.cuda_kernel(_REVERSE, "reverse", out_shape=lambda x: x, grid=1, block=64)
    x = np.arange(64, dtype=np.int32)
    start = time.perf_counter()
    try:
        # Without the disk cache, so that the compiler runs.
        with progress(f"compiling a kernel for {_name(device)}"), jge.options(cache_dir=None):
            out = np.asarray(reverse(jax.device_put(x, device)))
    except CompilerNotFoundError:
        return Check(name, state, "no kernel can run: there is no compiler, as said above")
    except Exception as error:  # any failure is this check's result
        return Check(name, state, f"no kernel can run: {type(error).__name__}: {error}")
    if not np.array_equal(out, x[::-1]):
        return Check(name, "fail", f"a kernel ran, but its result is wrong: {out.tolist()}")
    model = jge.device_info(device).name
    seconds = time.perf_counter() - start
    return Check(name, "ok", f"{model}: a kernel was compiled and run in {seconds:.1f} s")

"""The checks of what is installed: package, JAX, driver, compilers and cache."""

from __future__ import annotations

import difflib
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import jax

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.base.options import ENVIRONMENT_PREFIX, Options, origin
from jax_graphenc.base.options import current as current_options
from jax_graphenc.cli.console import progress
from jax_graphenc.cli.info import cuda_driver, devices, versions
from jax_graphenc.compiler import cache, cxx, fatbin, nvcc, nvrtc_library
from jax_graphenc.compiler.cuda_headers import toolkit_headers
from jax_graphenc.programs import custom_call

_WITH_CUDA = 'pip install "jax[cuda13]"'
_WITH_NVRTC = (
    'pip install "nvidia-cuda-nvrtc>=13,<14" "nvidia-cuda-runtime>=13,<14" '
    '"nvidia-cuda-crt>=13,<14"'
)
_NVRTC_WITH_HEADERS = (13, 3)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check.

    Attributes:
        name: the thing checked.
        state: ``"ok"``; ``"note"`` if an optional thing is missing; ``"fail"`` if a needed one is.
        found: a sentence.
        advice: what to do, or ``""``.
    """

    name: str
    state: Literal["ok", "note", "fail"]
    found: str
    advice: str = ""


def installed() -> Iterator[Check]:
    """Checks everything but running a kernel."""
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
    """Finds misspelled settings: variables with our prefix that nothing reads."""
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
    except (RuntimeError, AssertionError) as error:  # AssertionError: no backend at all
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
        return Check("NVRTC", "fail" if has_gpu else "note", _first_line(error), _WITH_NVRTC)
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
    return Check("CUDA headers", "note", what, "pip install nvidia-cuda-runtime nvidia-cuda-crt")


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
        # JAX has started: XLA accepts the same handler again, but no other one of that name.
        custom_call.register_targets()
    except Exception as error:
        advice = "load one version of jax_graphenc only, and reinstall it together with jax"
        return Check("custom calls", "fail", f"XLA refuses them: {_first_line(error)}", advice)
    names = dict.fromkeys(name for name, _, _ in targets)
    return Check("custom calls", "ok", f"registered with XLA: {', '.join(names)}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

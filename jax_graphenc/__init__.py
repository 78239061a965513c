"""Hand-written CUDA inside ``jax.jit``, at CUDA-graph speed."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jax_graphenc._core  # first, so that the error of a missing build names it
import jax_graphenc.base.uninitialized  # noqa: F401 - installs the native part's handler of warnings
from jax_graphenc import testing
from jax_graphenc.base.errors import (
    CompilerNotFoundError,
    GatherWarning,
    GraphBreakError,
    KernelCompileError,
    LaunchLimitError,
    NotTunedWarning,
    ReferenceUsedWarning,
    UninitializedReadWarning,
    UnsupportedOnCpuError,
)
from jax_graphenc.base.options import options
from jax_graphenc.caches import clear_caches
from jax_graphenc.calls.launch import cdiv
from jax_graphenc.compiler.cache import CacheUnavailableWarning
from jax_graphenc.devices.device_info import DeviceInfo, GraphLimits, device_info, graph_limits
from jax_graphenc.encoder.encoder import Encoder
from jax_graphenc.kernels.autotune import Autotuned, autotune
from jax_graphenc.kernels.define import cuda_kernel, kernel_call
from jax_graphenc.kernels.kernel import CudaKernel
from jax_graphenc.kernels.module import CudaModule, cuda_module
from jax_graphenc.kernels.occupancy import KernelAttributes, Occupancy
from jax_graphenc.programs.custom_call import export_checks
from jax_graphenc.regions.graph import graph
from jax_graphenc.statistics import (
    KernelTime,
    KernelTimes,
    Stats,
    driver_calls,
    kernel_times,
    reset_stats,
    stats,
)

if TYPE_CHECKING:
    from jax_graphenc.explanation.explain import explain
    from jax_graphenc.explanation.explanation import Explanation

__version__ = version(__name__)

__all__ = [
    "Autotuned",
    "CacheUnavailableWarning",
    "CompilerNotFoundError",
    "CudaKernel",
    "CudaModule",
    "DeviceInfo",
    "Encoder",
    "Explanation",
    "GatherWarning",
    "GraphBreakError",
    "GraphLimits",
    "KernelCompileError",
    "KernelAttributes",
    "KernelTime",
    "KernelTimes",
    "LaunchLimitError",
    "NotTunedWarning",
    "Occupancy",
    "ReferenceUsedWarning",
    "Stats",
    "UninitializedReadWarning",
    "UnsupportedOnCpuError",
    "autotune",
    "cdiv",
    "clear_caches",
    "cuda_kernel",
    "cuda_module",
    "device_info",
    "driver_calls",
    "explain",
    "export_checks",
    "graph",
    "graph_limits",
    "kernel_call",
    "kernel_times",
    "options",
    "reset_stats",
    "stats",
    "testing",
]


# Importing the report takes a tenth of the package's start-up.
_LATER = {
    "Explanation": "jax_graphenc.explanation.explanation",
    "explain": "jax_graphenc.explanation.explain",
}


def __getattr__(name: str) -> Any:
    """Imports a name at its first use."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])

"""Hand-written CUDA inside ``jax.jit``, at CUDA-graph speed."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jax_graphenc._core  # first, so that a missing build is named plainly
import jax_graphenc.uninitialized  # noqa: F401 - tells the native part whom to warn
from jax_graphenc import testing
from jax_graphenc.autotune import Autotuned, autotune
from jax_graphenc.caches import clear_caches
from jax_graphenc.compiler.cache import CacheUnavailableWarning
from jax_graphenc.define import cuda_kernel, kernel_call
from jax_graphenc.device import DeviceInfo, GraphLimits, device_info, graph_limits
from jax_graphenc.encoder import Encoder
from jax_graphenc.errors import (
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
from jax_graphenc.graph import graph
from jax_graphenc.kernel import CudaKernel
from jax_graphenc.launch import cdiv
from jax_graphenc.lowering import export_checks
from jax_graphenc.module import CudaModule, cuda_module
from jax_graphenc.occupancy import KernelAttributes, Occupancy
from jax_graphenc.options import options
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
    from jax_graphenc.explanation import Explanation, explain

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


def __getattr__(name: str) -> Any:
    """The report, whose import would take a tenth of a start-up that has no use for it."""
    if name in ("Explanation", "explain"):
        from jax_graphenc import explanation

        return getattr(explanation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Hand-written CUDA inside ``jax.jit``, at CUDA-graph speed."""

import jax_graphenc._core  # noqa: F401 - first, so that a missing build is named plainly
from jax_graphenc.device import DeviceInfo, GraphLimits, device_info, graph_limits
from jax_graphenc.errors import CompilerNotFoundError, KernelCompileError, UnsupportedOnCpuError
from jax_graphenc.kernel import CudaKernel, cdiv, cuda_kernel, kernel_call
from jax_graphenc.options import options
from jax_graphenc.statistics import reset_stats, stats

__all__ = [
    "CompilerNotFoundError",
    "CudaKernel",
    "DeviceInfo",
    "GraphLimits",
    "KernelCompileError",
    "UnsupportedOnCpuError",
    "cdiv",
    "cuda_kernel",
    "device_info",
    "graph_limits",
    "kernel_call",
    "options",
    "reset_stats",
    "stats",
]

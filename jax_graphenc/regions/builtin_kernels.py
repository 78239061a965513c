"""Kernels of the package's own, for what a program does between the user's."""

from __future__ import annotations

import functools

import numpy as np

from jax_graphenc.calls.call import KernelCall
from jax_graphenc.calls.launch import cdiv
from jax_graphenc.calls.values import Keywords
from jax_graphenc.kernels.define import cuda_kernel
from jax_graphenc.kernels.kernel import CudaKernel
from jax_graphenc.kernels.prepare import prepare

_SUM = r"""
template <typename T>
__global__ void sum(const T* a, const T* b, T* out, unsigned long long n) {
  unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}
"""


@functools.cache
def _sum() -> CudaKernel:
    """Made when it is needed, since that reads its signature, for which a grammar is loaded."""
    return cuda_kernel(
        _SUM,
        "sum<{a}>",
        out_shape=lambda a: a,
        grid=lambda a, b, n: cdiv(n, 256),
        block=256,
    )


@functools.lru_cache(maxsize=256)
def sum_of(dtype: str, count: int) -> KernelCall:
    """The sum of two arrays of ``count`` elements of a dtype."""
    array = ((count,), np.dtype(dtype))
    return prepare(_sum().definition, (array, array), Keywords({"n": count}))

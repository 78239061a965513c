"""small_kernels.py: two kernels, chains of them, and the same in numpy."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge

SOURCE = r"""
extern "C" __global__ void axpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
extern "C" __global__ void bump(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}
"""


def kernel(name, source=SOURCE, **options):
    return jge.cuda_kernel(
        source, name, grid=lambda x, *_, **__: jge.cdiv(x.size, 64), block=64, **options
    )


axpy_kernel = kernel("axpy", out_shape=lambda x, *_, **__: x)
bump_kernel = kernel("bump", params={"x": "inout"})

X = jnp.arange(300, dtype=jnp.float32)
ONE = jnp.ones(300, jnp.float32)


def axpy(x, y, a=2.0):
    return axpy_kernel(x, y, a=a, n=x.size)


def bump(x):
    return bump_kernel(x, n=x.size)


def steps(x, y, count):
    for i in range(count):
        x = axpy(x, y, a=1.0 + i % 3 * 0.001)
    return x


def steps_in_numpy(x, y, count):
    for i in range(count):
        x = np.float32(1.0 + i % 3 * 0.001) * x + y
    return x


def each(function):
    """A test of both: kernels that are custom calls of their own, and regions."""
    return pytest.mark.parametrize("wrap", [lambda f: f, jge.graph], ids=["lone", "region"])(
        function
    )

"""squares.py: a kernel with a derivative, and a region of two."""

import numpy as np

import jax_graphenc as jge

SOURCE = r"""
extern "C" __global__ void square(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];
}
extern "C" __global__ void twice(const float* x, const float* ct, float* y) {
  y[threadIdx.x] = 2 * x[threadIdx.x] * ct[threadIdx.x];
}
"""


def of(name):
    return jge.cuda_kernel(
        SOURCE, name, out_shape=lambda x, *_: x, grid=1, block=lambda x, *_: x.size
    )


square, twice = of("square"), of("twice")
square.defvjp(lambda x: (square(x), x), lambda x, ct: (twice(x, ct),))
step = jge.graph(lambda x: square(square(x)), name="two_steps")
X = np.asarray([0.5, 1.0, 1.5, 0.25], np.float32)

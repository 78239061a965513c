"""The encoder in Python on a GPU, with CuPy for arrays and as the library that takes a stream."""

import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge

pytestmark = pytest.mark.usefixtures("gpu")
cupy = pytest.importorskip("cupy")

SIZE = 256
AFFINE = r"""
extern "C" __global__ void affine(float* data, float scale, float shift) {
  data[threadIdx.x] = scale * data[threadIdx.x] + shift;
}
extern "C" __global__ void add(const float* x, const float* y, float* out) {
  out[threadIdx.x] = x[threadIdx.x] + y[threadIdx.x];
}
"""


@pytest.fixture(scope="module")
def affine():
    return jge.cuda_kernel(AFFINE, "affine", params={"data": "inout"}, grid=1, block=SIZE)


@pytest.fixture(scope="module")
def add():
    return jge.cuda_kernel(AFFINE, "add", out_shape=lambda x, y: x, grid=1, block=SIZE)


def test_arrays_of_two_libraries(affine, add):
    x, out = jnp.arange(float(SIZE)), cupy.zeros(SIZE, cupy.float32)
    y = cupy.ones(SIZE, cupy.float32)
    cupy.cuda.get_current_stream().synchronize()
    with jge.Encoder() as enc:
        for _ in range(4):
            enc.append(affine, y, scale=2.0, shift=1.0)
            enc.append(add, x, y, out)
            enc.commit()
        enc.synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(out), np.arange(SIZE) + 31)
    with jge.Encoder() as enc, pytest.raises(TypeError, match="output 'out'"):
        enc.append(add, x, y, x)


def test_a_concurrent_region_and_handlers(affine):
    parts = [cupy.full(SIZE, float(i), cupy.float32) for i in range(8)]
    cupy.cuda.get_current_stream().synchronize()
    told = []
    with jge.Encoder() as enc:
        for _ in range(3):
            with enc.concurrent():
                for part in parts:
                    enc.append(affine, part, scale=2.0, shift=0.0)
            enc.commit()
        enc.add_completed_handler(told.append)
        enc.synchronize()
    assert told == [None]
    for i, part in enumerate(parts):
        np.testing.assert_array_equal(cupy.asnumpy(part), np.full(SIZE, 8.0 * i))


def test_library_work_becomes_a_node(affine):
    x, y = cupy.ones(SIZE, cupy.float32), cupy.empty(SIZE, cupy.float32)
    cupy.multiply(x, 3.0, out=y)  # compiled before the capture
    cupy.cuda.get_current_stream().synchronize()
    with jge.Encoder() as enc:
        for _ in range(3):
            enc.append(affine, x, scale=2.0, shift=0.0)
            with (
                enc.capture(reads=[x], writes=[y]) as stream,
                cupy.cuda.ExternalStream(stream),
            ):
                cupy.multiply(x, 3.0, out=y)
            enc.append(affine, y, scale=1.0, shift=1.0)
            enc.commit()
        enc.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(y), np.full(SIZE, 25.0))

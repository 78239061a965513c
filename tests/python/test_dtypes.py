"""Every dtype that CUDA has, alone and in regions, with 64-bit types and without."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_graphenc as jge

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
]
WIDE = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}

REVERSE = r"""
template <typename T> __global__ void reverse(const T* x, T* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[n - 1 - i] = x[i];
}
"""


@pytest.fixture(scope="module")
def reverse():
    return jge.cuda_kernel(
        REVERSE,
        "reverse<{x}>",
        out_shape=lambda x, n: x,
        grid=lambda x, n: jge.cdiv(x.size, 32),
        block=32,
    )


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_copies(reverse, dtype, x64):
    x = (np.arange(50) % 7 - 1).astype(dtype)
    with jax.enable_x64(x64):
        held = WIDE.get(dtype, dtype) if not x64 else dtype
        expected = x.astype(held)[::-1]
        alone = reverse(x, n=50)
        assert same_bits(alone, expected)

        @jax.jit
        @jge.graph(strict=True)
        def thrice(x):
            return reverse(reverse(reverse(x, n=50), n=50), n=50)

        assert same_bits(thrice(x), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_fills_and_concatenations_in_regions(reverse, dtype):
    with jax.enable_x64(True):
        x = jnp.asarray((np.arange(8) % 5).astype(dtype))

        @jge.graph
        def region(x):
            ones = jnp.full(4, 1, x.dtype)
            return reverse(jnp.concatenate([x[2:6], ones, reverse(x, n=8)]), n=16)

        whole = np.concatenate([x[2:6], np.ones(4, x.dtype), x[::-1]])[::-1]
        assert same_bits(region(x), whole)


@pytest.mark.parametrize("dtype", ["float8_e4m3b11fnuz", "int4", "uint4", "float8_e4m3"])
def test_what_cuda_has_no_type_for(reverse, dtype):
    x = jax.ShapeDtypeStruct((8,), dtype)
    for function in (reverse, jge.graph(reverse, static_argnames="n")):
        with pytest.raises(TypeError, match=rf"kernel 'reverse': input 'x'.*{dtype}"):
            jax.jit(function, static_argnames="n").trace(x, n=8)


@pytest.mark.parametrize("dtype", ["int32", "float16", "complex64"])
def test_another_dtype_is_an_error_when_traced(dtype):
    double = jge.cuda_kernel(
        'extern "C" __global__ void twice(const float* x, float* out) { out[0] = 2 * x[0]; }',
        "twice",
        out_shape=lambda x: x,
        grid=1,
        block=1,
    )
    for function in (double, jge.graph(double)):
        with pytest.raises(TypeError, match=rf"'x' .*{dtype}"):
            jax.jit(function).trace(jax.ShapeDtypeStruct((1,), dtype))


CONVERT = r"""
template <typename T> __global__ void widen(const T* x, float* out) {
  out[threadIdx.x] = float(x[threadIdx.x]);
}
#include <cuda_fp8.h>
template <typename T, typename From> __global__ void narrow(const From* x, T* out) {
  out[threadIdx.x] = T(x[threadIdx.x]);
}
__global__ void cut(const float* x, __nv_fp8_e4m3* a, __nv_fp8_e5m2* b) {
  int i = threadIdx.x;
  a[i].__x = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E4M3);
  b[i].__x = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E5M2);
}
__global__ void pairs(const float2* x, __nv_fp8x2_e4m3* a, float2* back) {
  a[threadIdx.x] = __nv_fp8x2_e4m3(x[threadIdx.x]);
  back[threadIdx.x] = float2(a[threadIdx.x]);
}
"""
FP8 = {"float8_e4m3fn": "__nv_fp8_e4m3", "float8_e5m2": "__nv_fp8_e5m2"}
LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}


@pytest.mark.parametrize("dtype", [*FP8, "float8_e8m0fnu"])
def test_every_8_bit_float_is_what_numpy_reads(dtype):
    widen = jge.cuda_kernel(
        CONVERT,
        "widen<{x}>",
        out_shape=lambda x: jax.ShapeDtypeStruct(x.shape, "float32"),
        grid=1,
        block=256,
    )
    x = np.arange(256, dtype=np.uint8).view(dtype)
    np.testing.assert_array_equal(widen(x), x.astype(np.float32))


def numbers():
    """What is representable, the middles in between and their neighbours, and others."""
    known = np.arange(256, dtype=np.uint8)
    values = np.concatenate(
        [known.view(getattr(ml_dtypes, name)).astype(np.float32) for name in FP8]
    )
    values = np.unique(values[np.isfinite(values)])
    middles = (values[1:] + values[:-1]) / 2
    edges = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    drawn = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    return np.concatenate([values, middles, *edges, drawn, 1e-3 * drawn, [0.0, -0.0]]).astype("f4")


@pytest.mark.parametrize("dtype", FP8)
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_rounding_to_8_bits(dtype, source):
    x = numbers()
    x = x[np.abs(x) <= LARGEST[dtype]]
    with jax.enable_x64(True):
        narrow = jge.cuda_kernel(
            CONVERT,
            f"narrow<{FP8[dtype]}, {{x}}>",
            out_shape=lambda x: jax.ShapeDtypeStruct(x.shape, dtype),
            grid=1,
            block=256,
        )
        x = np.resize(x, (-(-x.size // 256), 256)).astype(source)
        out = np.stack([narrow(row) for row in x])
    np.testing.assert_array_equal(out.view(np.uint8), x.astype(dtype).view(np.uint8))


def test_what_8_bits_cannot_hold():
    x = np.asarray([448, 464, 465, 500, 57344, 61439, 61440, 1e30, np.inf, np.nan], np.float32)
    x = np.concatenate([x, -x])
    n = x.size
    saturated = {}
    for dtype, spelling in FP8.items():
        narrow = jge.cuda_kernel(
            CONVERT,
            f"narrow<{spelling}, float>",
            out_shape=lambda x, dtype=dtype: jax.ShapeDtypeStruct(x.shape, dtype),
            grid=1,
            block=n,
        )
        saturated[dtype] = np.asarray(narrow(x)).astype(np.float32)
        np.testing.assert_array_equal(
            saturated[dtype],
            np.clip(x, -LARGEST[dtype], LARGEST[dtype]).astype(dtype).astype(np.float32),
        )
    cut = jge.cuda_kernel(
        CONVERT,
        "cut",
        out_shape=lambda x: tuple(jax.ShapeDtypeStruct(x.shape, d) for d in FP8),
        grid=1,
        block=n,
    )
    for out, dtype in zip(cut(x), FP8, strict=True):
        np.testing.assert_array_equal(
            np.asarray(out).astype(np.float32), x.astype(dtype).astype(np.float32)
        )


def test_pairs_of_8_bit_floats():
    pairs = jge.cuda_kernel(
        CONVERT,
        "pairs",
        out_shape=lambda x: (jax.ShapeDtypeStruct(x.shape, "float8_e4m3fn"), x),
        grid=1,
        block=lambda x: x.size // 2,
    )
    x = np.linspace(-3, 3, 32, dtype=np.float32)
    out, back = pairs(x)
    assert same_bits(out, x.astype("float8_e4m3fn"))
    np.testing.assert_array_equal(back, x.astype("float8_e4m3fn").astype(np.float32))

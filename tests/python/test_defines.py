"""Values of macros: what `defines=` gives is what the kernel sees."""

import enum
import math

import ml_dtypes
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.compiler import nvrtc, nvrtc_library
from jax_graphenc.compiler.source import Source
from jax_graphenc.kernels.sources import macros_of

pytestmark = pytest.mark.usefixtures("cpu")


class Mode(enum.IntEnum):
    FAST = 3


# What is given, the C++ type in which it is kept, and its dtype.
VALUES = [
    *((value, "double", np.float64) for value in (math.inf, -math.inf, math.nan, -0.0, 0.1, 1e22)),
    *((value, "double", np.float64) for value in (5e-324, 1e308, 2.0, np.float64(-math.inf))),
    *((np.float32(v), "float", np.float32) for v in (math.inf, -math.inf, math.nan, -0.0, 0.1, 3)),
    *((np.float16(v), "float", np.float32) for v in (math.inf, 0.1, -65504)),
    (ml_dtypes.bfloat16(0.1), "float", np.float32),
    (ml_dtypes.float8_e4m3fn(0.3), "float", np.float32),
    (np.longdouble("0.5"), "double", np.float64),
    *((np.bool_(v), "int", np.int32) for v in (True, False)),
    *((v, "int", np.int32) for v in (True, False, -1, 2**31 - 1, Mode.FAST)),
    (-(2**31), "int", np.int32),
    *((v, "long long", np.int64) for v in (2**31, 2**63 - 1, -(2**63))),
    *((v, "unsigned long long", np.uint64) for v in (2**63, 2**64 - 1)),
    *((t(7), "int", np.int32) for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32)),
    *((t(7), "long long", np.int64) for t in (np.uint32, np.int64)),
    (np.uint64(2**64 - 1), "unsigned long long", np.uint64),
    (np.int64(-(2**63)), "long long", np.int64),
]


def test_values_arrive_with_every_bit():
    # One kernel for all: each value has a macro, an output and a place where its sign shows.
    defines = {f"V{i}": value for i, (value, _, _) in enumerate(VALUES)}
    parameters = ", ".join(f"{kind}* y{i}" for i, (_, kind, _) in enumerate(VALUES))
    body = " ".join(f"y{i}[0] = V{i}; y{i}[1] = 1*V{i};" for i in range(len(VALUES)))
    text = f'extern "C" __global__ void k({parameters}) {{ {body} }}'
    shapes = [np.zeros(2, dtype) for _, _, dtype in VALUES]
    kernel = jge.cuda_kernel(text, "k", out_shape=shapes, grid=1, block=1, defines=defines)
    for (value, _, dtype), got in zip(VALUES, kernel(), strict=True):
        expected = np.array([value, value]).astype(dtype)
        np.testing.assert_array_equal(got, expected)
        if dtype in (np.float32, np.float64):
            np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def test_every_compiler_takes_them():
    try:
        nvrtc_library.version()
    except jge.CompilerNotFoundError as error:
        pytest.skip(str(error))
    macros = tuple(macros_of({f"V{i}": value for i, (value, _, _) in enumerate(VALUES)}).items())
    checks = " ".join(f"constexpr auto v{i} = V{i}; y[{i}] = v{i};" for i in range(len(VALUES)))
    text = f'extern "C" __global__ void k(double* y) {{ {checks} }}'
    assert not nvrtc.compile_image(Source(text, "<k>", defines=macros), ["k"], "sm_90").log


def test_conditions_may_use_integers():
    text = """#if A == 1 && B < 0 && C > 4000000000 && D == 18446744073709551615UL && !E
extern "C" __global__ void k(float* y) { y[0] = 1; }
#endif
"""
    defines = {"A": np.bool_(True), "B": -(2**63), "C": 2**32, "D": 2**64 - 1, "E": np.bool_(0)}
    kernel = jge.cuda_kernel(
        text, "k", out_shape=np.zeros(1, np.float32), grid=1, block=1, defines=defines
    )
    assert kernel()[0] == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**64, "no integer type of C\\+\\+ holds it"),
        (-(2**63) - 1, "no integer type of C\\+\\+ holds it"),
        (1j, "a number, a string, True, False or None"),
        (np.complex64(1), "a number, a string, True, False or None"),
        (np.zeros(3), "a number, a string, True, False or None"),
        (np.datetime64("2020"), "a number, a string, True, False or None"),
    ],
)
def test_what_is_no_macro(value, message):
    text = 'extern "C" __global__ void k(float* y) { y[0] = V; }'
    with pytest.raises((TypeError, OverflowError), match=message):
        jge.cuda_kernel(text, "k", grid=1, block=1, defines={"V": value})


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=1", "A-B", "a\nb"])
def test_what_is_no_name(name):
    text = 'extern "C" __global__ void k(float* y) { y[0] = 1; }'
    with pytest.raises(TypeError, match="a name"):
        jge.cuda_kernel(text, "k", grid=1, block=1, defines={name: 1})


def test_a_macro_may_have_arguments():
    text = 'extern "C" __global__ void k(float* y) { y[0] = TWICE(4); }'
    shape = np.zeros(1, np.float32)
    kernel = jge.cuda_kernel(
        text, "k", out_shape=shape, grid=1, block=1, defines={"TWICE(x)": "(2 * (x))"}
    )
    assert kernel()[0] == 8

"""In debug mode, on the CPU: conversions and shifts that a GPU computes otherwise are told."""

import math

import jax
import numpy as np
import pytest

import jax_graphenc as jge

pytestmark = pytest.mark.usefixtures("cpu")

LAUNCH = {"out_shape": np.zeros(1, np.float64), "grid": 1, "block": 1}


@pytest.fixture
def debug():
    with jge.options(debug=True):
        yield


def run(expression, x, n=0, before=""):
    text = (
        f"{before}\n__global__ void k(const double* x, const int* n, double* y) {{\n"
        f"  float f = x[0]; double d = x[0]; int i = n[0];\n  y[0] = {expression};\n}}\n"
    )
    kernel = jge.cuda_kernel(text, "k", **LAUNCH)
    with jax.enable_x64(True):
        return float(kernel(np.array([x], np.float64), np.array([n], np.int32))[0])


@pytest.mark.usefixtures("debug")
@pytest.mark.parametrize(
    ("expression", "x", "n", "told"),
    [
        ("(int)f", 3e9, 0, r"converts 3e\+09 to 'int'"),
        ("(int)f", math.nan, 0, "converts nan to 'int'"),
        ("(int)d", math.inf, 0, "converts inf to 'int'"),
        ("(unsigned)f", -1.5, 0, "converts -1.5 to 'unsigned int'"),
        ("(long long)d", 1e19, 0, r"converts 1e\+19 to 'long long int'"),
        ("(unsigned char)f", 256, 0, "converts 256 to 'unsigned char'"),
        ("(short)d", -40000, 0, "converts -40000 to 'short int'"),
        ("static_cast<int>(f * 2)", 2e9, 0, "converts"),
        ("1u << i", 0, 32, "shifts 'unsigned int' of 32 bits by 32"),
        ("1 << i", 0, -1, "shifts 'int' of 32 bits by -1"),
        ("1ull << i", 0, 64, "shifts 'long long unsigned int' of 64 bits by 64"),
        ("-8 >> i", 0, 33, "shifts 'int' of 32 bits by 33"),
    ],
)
def test_what_a_gpu_computes_otherwise(expression, x, n, told):
    with pytest.raises(
        Exception, match=rf"k: .*test_conversions\.py:\d+: .*{told}|<k>:4: .*{told}"
    ):
        run(expression, x, n)


@pytest.mark.usefixtures("debug")
@pytest.mark.parametrize(
    ("expression", "x", "n", "value"),
    [
        ("(int)f", -2.9, 0, -2),
        ("(unsigned)f", -0.5, 0, 0),
        ("(long long)d", 2.0**62, 0, 2.0**62),
        ("1u << i", 0, 31, 2.0**31),
        ("(1 << i) < 0", 0, 31, 1),
        ("(-8 << i)", 0, 1, -16),
        ("-8 >> i", 0, 31, -1),
        ("i > 0 ? 1 << i : 7", 0, -3, 7),
        ("f < 1e9f ? (int)f : 5", 3e9, 0, 5),
        ("(unsigned char)(int)f", 256, 0, 0),
        ("__float2int_rn(f)", 2.6, 0, 3),
    ],
)
def test_what_is_the_same_runs(expression, x, n, value):
    assert run(expression, x, n) == value


def test_without_debug_mode_nothing_is_told():
    run("(int)f", 3e9)
    run("1u << i", 0, 32)

"""Default arguments of C++ as defaults of the Python function."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.signature.parse import parse_signature

pytestmark = pytest.mark.usefixtures("cpu")
X = jnp.arange(4, dtype=jnp.float32)
SOURCE = r"""
enum class Mode { kKeep, kNegate };
constexpr int kShift = 5;
extern "C" __global__ void f(const float* x, float* out, float a = -0.1f, int n = 3, bool up = true,
                             Mode mode = Mode::kNegate, int shift = kShift) {
  if (threadIdx.x >= n) { out[threadIdx.x] = -1; return; }
  float v = a * x[threadIdx.x];
  out[threadIdx.x] = (mode == Mode::kNegate ? -v : v) + (up ? shift : 0);
}
"""


def make(source=SOURCE, **options):
    launch = {"out_shape": lambda x: x, "grid": 1, "block": lambda x: x.size}
    return jge.cuda_kernel(source, "f", **{**launch, **options})


def f_reference(x, *, a=-0.1, n=3, up=True, mode=1, shift=5):
    v = a * x
    return jnp.where(jnp.arange(x.size) < n, jnp.where(mode == 1, -v, v) + shift * up, -1)


def default(parameter, declarations=""):
    source = f"{declarations}\n__global__ void f(float* out, {parameter}) {{}}"
    return parse_signature(source, "f").parameters[1].default


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("int n = 3", 3),
        ("int n = -3", -3),
        ("int n = 1e6", 1000000),
        ("unsigned n = -1", 2**32 - 1),
        ("int n = N", 4),
        ("float a = 0.1f", 0.1),
        ("double a = 0.1f", float(np.float32(0.1))),
        ("double a = 0.1", 0.1),
        ("float a = 1", 1),
        ("bool b = 0", False),
        ("bool b = true", True),
        ("const int n = 3", 3),
        ("int n = N * 2", 8),
    ],
)
def test_defaults_that_are_constants(parameter, value):
    found = default(parameter, "#define N 4")
    assert found.known
    assert found.value == value
    assert type(found.value) is type(value)


def test_a_default_of_a_declaration_counts():
    source = """__global__ void f(float* out, int n = 3, int m = 4);
    __global__ void f(float* out, int n, int m) {}"""
    values = [p.default and p.default.value for p in parse_signature(source, "f").parameters]
    assert values == [None, 3, 4]


def test_a_default_may_be_a_template_argument():
    source = "template <int N> __global__ void f(float* out, int n = N) {}"
    assert parse_signature(source, "f<7>").parameters[1].default.value == 7


@pytest.mark.parametrize(
    "parameter", ["int n = f()", "float4 v = {}", "S s = 3", "int n = sizeof(int)", "P p = nullptr"]
)
def test_defaults_that_are_none(parameter):
    found = default(parameter, "struct S { S(int); };")
    assert not found.known
    assert found.text == parameter.partition("= ")[2]


def test_a_default_of_a_type_that_depends_on_an_input():
    source = "template <class T> __global__ void f(const T* x, T* out, T a = 2) { *out = a * *x; }"
    kernel = jge.cuda_kernel(source, "f<{x}>", out_shape=lambda x: x, grid=1, block=1)
    assert kernel(jnp.float32(1.5)) == 3
    assert kernel(jnp.int32(2)) == 4


def test_defaults_are_those_of_the_python_function():
    parameters = inspect.signature(make()).parameters
    given = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    assert given == {"a": -0.1, "n": 3, "up": True, "mode": 1, "shift": 5}


def test_a_call_may_give_some():
    kernel = make(reference=f_reference)
    np.testing.assert_allclose(kernel(X), f_reference(X), rtol=1e-6)
    np.testing.assert_allclose(kernel(X, n=2, up=False), f_reference(X, n=2, up=False), rtol=1e-6)
    grad = jax.grad(lambda x: jax.jit(kernel)(x).sum())(X)
    np.testing.assert_allclose(grad, [0.1, 0.1, 0.1, 0], rtol=1e-6)


def test_values_win_over_defaults_and_functions_of_shapes_see_them():
    kernel = make(values={"n": lambda x: x.size - 2}, grid=lambda shift: shift - 4)
    np.testing.assert_allclose(kernel(X), f_reference(X, n=2), rtol=1e-6)


@pytest.mark.parametrize("traced", ["a", "n", "shift"])
def test_a_traced_value_leaves_the_others_their_defaults(traced):
    value = {"a": 0.5, "n": 1, "shift": 8}[traced]
    kernel = make()
    out = jax.jit(lambda v: kernel(X, **{traced: v}))(value)
    np.testing.assert_allclose(out, f_reference(X, **{traced: value}), rtol=1e-6)


def test_a_default_that_is_not_known_here_is_required():
    kernel = make(SOURCE.replace("int shift = kShift", "int shift = sizeof(float)"))
    message = (
        "keyword shift is missing; the default of 'shift', sizeof(float), is no constant that is "
        "known here: give it in the call, or by values={'shift': ...}"
    )
    with pytest.raises(TypeError, match=re.escape(message)):
        kernel(X)
    np.testing.assert_allclose(kernel(X, shift=4), f_reference(X, shift=4), rtol=1e-6)

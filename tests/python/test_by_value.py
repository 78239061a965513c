"""By-value parameters of types that a source declares."""

import enum
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge

pytestmark = pytest.mark.usefixtures("cpu")
X = jnp.arange(4, dtype=jnp.float32)
MODES = r"""
enum class Mode : unsigned char { kKeep, kDouble, kNegate = 7 };
enum Sign { MINUS = -1, PLUS = 1 };
extern "C" __global__ void f(const float* x, float* out, Mode mode, Sign sign, bool shift) {
  float v = x[threadIdx.x];
  if (mode == Mode::kDouble) v *= 2;
  if (mode == Mode::kNegate) v = -v;
  out[threadIdx.x] = sign * v + (shift ? 100 : 0);
}
"""


def make(source, name="f", **options):
    return jge.cuda_kernel(
        source, name, **{"out_shape": lambda x: x, "grid": 1, "block": lambda x: x.size, **options}
    )


def f_reference(x, *, mode, sign, shift):
    return sign * jnp.where(mode == 1, 2 * x, jnp.where(mode == 7, -x, x)) + 100 * shift


modes = make(MODES, reference=f_reference)


class Mode(enum.IntEnum):
    KEEP = 0
    DOUBLE = 1


@pytest.mark.parametrize(
    ("mode", "value"),
    [
        (1, 1),
        (Mode.DOUBLE, 1),
        (np.uint8(1), 1),
        ("kDouble", 1),
        ("Mode::kNegate", 7),
        (3, 3),
    ],
)
def test_an_enumeration_is_an_integer_or_the_name_of_an_enumerator(mode, value):
    out = modes(X, mode=mode, sign="MINUS", shift=True)
    np.testing.assert_array_equal(out, f_reference(X, mode=value, sign=-1, shift=True))


def test_enumerations_reach_shape_functions_as_integers():
    kernel = make(MODES, block=lambda x, mode: x.size if mode == 1 else 1)
    out = kernel(X, mode="kDouble", sign=1, shift=False)
    np.testing.assert_array_equal(out, 2 * X)


def test_transformations_of_a_kernel_with_enumerations():
    f = lambda x: modes(x, mode="kDouble", sign=-1, shift=True)  # noqa: E731
    np.testing.assert_array_equal(jax.vmap(f)(jnp.stack([X, X + 1]))[1], -2 * (X + 1) + 100)
    np.testing.assert_array_equal(jax.grad(lambda x: f(x).sum())(X), -2 * jnp.ones(4))
    np.testing.assert_array_equal(jge.graph(lambda x: f(f(x)))(X), -2 * (-2 * X + 100) + 100)


def test_a_traced_enumeration_is_loaded():
    f = jax.jit(lambda x, mode, sign: modes(x, mode=mode, sign=sign, shift=False))
    np.testing.assert_array_equal(f(X, 1, -1), -2 * X)
    np.testing.assert_array_equal(f(X, 7, 1), -X)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"mode": "kHalf"}, "'mode' (Mode) has no enumerator 'kHalf'; it has kKeep = 0, "),
        ({"mode": 1.0}, "'mode' (Mode) is an enumeration: an integer or the name of an enumerator"),
        ({"mode": True}, "'mode' (Mode) is an enumeration"),
        ({"mode": 256}, "'mode' (Mode) holds 0 to 255; got 256"),
        ({"sign": 2**31}, "'sign' (Sign) holds -2147483648 to 2147483647; got 2147483648"),
        ({"shift": 2}, "'shift' (bool) takes a bool scalar; got 2"),
    ],
)
def test_what_is_no_value_of_an_enumeration_or_a_flag(keywords, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        modes(X, **{"mode": 0, "sign": 1, "shift": False, **keywords})


def test_a_traced_float_is_no_enumeration():
    with pytest.raises(
        TypeError, match=r"'mode' \(Mode\) takes a uint8 scalar; got a traced float32"
    ):
        jax.jit(lambda x, m: modes(x, mode=m, sign=1, shift=False))(X, 1.0)

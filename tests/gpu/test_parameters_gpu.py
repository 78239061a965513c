"""Parameters beyond arrays and numbers, as a GPU's compilers and driver take them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge

pytestmark = pytest.mark.usefixtures("gpu")

X = jnp.arange(1024, dtype=jnp.float32)
SOURCE = r"""
enum class Mode : unsigned char { kKeep, kNegate };
struct Pair { char tag; double weight; };
struct Arrays { int n; const float* x; Pair pair; const float* bias; float* work; float* out; };
extern "C" __global__ void f(Arrays a, Mode mode, float3 shift, float scale = 2) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.n) return;
  a.work[i] += scale * a.x[i] + float(a.pair.weight) * a.pair.tag;
  float v = a.work[i] + (a.bias ? a.bias[i] : 0) + shift.z;
  a.out[i] = mode == Mode::kNegate ? -v : v;
}
"""
f = jge.cuda_kernel(
    SOURCE,
    "f",
    out_shape=lambda a_x: a_x,
    grid=lambda a_x: jge.cdiv(a_x.size, 128),
    block=128,
    scratch={"a.work": lambda a_x: a_x},
    zero_init=("a.work",),
    reference=lambda x, bias, *, a, mode, shift, scale: _affine(x, bias, scale),
)


def _affine(x, bias, scale=2.0):
    return -(scale * x + 1.5 + (0 if bias is None else bias) + 3)


def call(x, bias=None):
    a = {"n": x.size, "pair": (3, 0.5)}
    return f(x, bias, a=a, mode="kNegate", shift=(1, 2, 3))


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jge.graph])
@pytest.mark.parametrize("bias", [None, X[::-1]])
def test_structs_with_pointers(wrap, bias):
    run = jax.jit(wrap(lambda x: call(call(x, bias), None)))
    kept = []
    for shift in range(5):  # arrays that are kept move the next ones
        kept.append(run(X + shift))
        np.testing.assert_allclose(kept[-1], _affine(_affine(X + shift, bias), None), rtol=1e-6)


def test_batches_and_derivatives():
    xs = jnp.stack([X + i for i in range(5)])
    np.testing.assert_allclose(jax.jit(jax.vmap(call, (0, None)))(xs, X), _affine(xs, X), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: call(x, X).sum())(X), -2 * jnp.ones(1024))


def test_a_traced_value_beside_a_struct():
    a = {"n": X.size, "pair": (3, 0.5)}
    run = jax.jit(lambda x, s: f(x, None, a=a, mode=1, shift=(1, 2, 3), scale=s))
    np.testing.assert_allclose(run(X, 4.0), _affine(X, None, 4.0), rtol=1e-6)

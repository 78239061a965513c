"""Pointers that are members of structs: arrays of their own in Python."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.compiler import host

pytestmark = pytest.mark.usefixtures("cpu")
X = jnp.arange(4, dtype=jnp.float32)
W = X + 1
SOURCE = r"""
struct Weights { const float* w; float scale; };
struct Params {
  int n;
  const float* x;
  Weights weights;
  float* __restrict__ out;
  float* sum;
};
extern "C" __global__ void f(const float* bias, Params p, float shift) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.n) return;
  p.out[i] = p.x[i] * (p.weights.w ? p.weights.w[i] : 1) * p.weights.scale + bias[0] + shift;
  atomicAdd(p.sum, p.x[i]);
}
"""
BIAS = jnp.float32(100)
P = {"n": 4, "weights": {"scale": 2}}


def f_reference(bias, x, w, *, p, shift):
    scale = p["weights"]["scale"]
    return x * (1 if w is None else w) * scale + bias + shift, x.sum()


def make(source=SOURCE, **options):
    launch = {
        "out_shape": lambda p_x: (p_x, jax.ShapeDtypeStruct((), p_x.dtype)),
        "grid": 1,
        "block": lambda p_x: p_x.size,
        "zero_init": ("p.sum",),
    }
    return jge.cuda_kernel(source, "f", **{**launch, **options})


f = make(reference=f_reference)


def expected(x=X, w=W, scale=2.0):
    return x * (1 if w is None else w) * scale + 100.5, x.sum()


def call(x=X, w=W, scale=2.0, kernel=f):
    return kernel(BIAS, x, w, p={"n": 4, "weights": (scale,)}, shift=0.5)


def same(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, want)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jge.graph])
def test_each_pointer_is_an_array(wrap):
    same(wrap(lambda x, w: call(x, w))(X, W), expected())
    # Twice, at other addresses and with other values: graphs are patched.
    twice = wrap(lambda x, w: call(call(x, w)[0], w, scale=0.5)[0])
    for shift in range(4):
        same(twice(X + shift, W), expected(expected(X + shift)[0], scale=0.5)[0])


def test_the_signature_names_the_members():
    assert str(inspect.signature(f)) == "(bias, p_x, p_weights_w, /, *, p, shift)"
    assert repr(f) == "<cuda_kernel f(const float* bias, Params p, float shift)>"


def test_an_absent_member_is_a_null_pointer():
    same(call(w=None), expected(w=None))
    same(jax.jit(lambda x: call(x, None))(X), expected(w=None))


def test_derivatives_and_batches():
    grads = jax.grad(lambda x, w: call(x, w)[0].sum(), (0, 1))(X, W)
    same(grads, (2 * W, 2 * X))
    xs = jnp.stack([X, X + 1, X + 2])
    same(jax.vmap(call, (0, None))(xs, W), jax.vmap(expected, (0, None))(xs, W))
    same(jax.vmap(lambda x: call(x, None))(xs), jax.vmap(lambda x: expected(x, None))(xs))
    grad = jax.vmap(jax.grad(lambda x: call(x)[0].sum()))(xs)
    same(grad, jnp.stack([2 * W] * 3))


def test_a_traced_value_beside_a_struct():
    got = jax.jit(lambda x, shift: f(BIAS, x, W, p=P, shift=shift))(X, 0.5)
    same(got, expected())


def test_a_struct_of_pointers_alone_is_no_keyword():
    kernel = jge.cuda_kernel(
        """namespace ns { template <class T> struct Arrays { const T* x; T* out; }; }
        template <class T> __global__ void f(ns::Arrays<T> a) {
          a.out[threadIdx.x] = 2 * a.x[threadIdx.x];
        }
        """,
        "f<float>",
        out_shape=lambda a_x: a_x,
        grid=1,
        block=4,
    )
    same(kernel(X), 2 * X)
    assert str(inspect.signature(kernel)) == "(a_x, /)"
    with pytest.raises(TypeError, match="a is no by-value parameter; they are: none"):
        kernel(X, a=())


def test_a_template_takes_the_type_of_a_member():
    kernel = jge.cuda_kernel(
        """template <class T> struct Arrays { const T* x; T* out; };
        template <class T> __global__ void f(Arrays<T> a) {
          a.out[threadIdx.x] = T(2) * a.x[threadIdx.x];
        }
        """,
        "f<{a_x}>",
        out_shape=lambda a_x: a_x,
        grid=1,
        block=4,
    )
    for x in (X, X.astype(jnp.int32), X.astype(jnp.bfloat16)):
        same(kernel(x), 2 * x)


ROLES = r"""
struct State { float* u; float* work; int n; };
extern "C" __global__ void f(State s) {
  for (int i = 0; i < s.n; ++i) s.work[i] = s.u[i];
  for (int i = 0; i < s.n; ++i) s.u[i] = s.work[s.n - 1 - i];
}
"""


@pytest.mark.parametrize("count", [1, 3])
def test_members_have_any_role(count):
    kernel = jge.cuda_kernel(
        ROLES,
        "f",
        params={"s.u": "inout", "s.work": "scratch"},
        scratch={"s.work": lambda s_u: s_u},
        grid=1,
        block=1,
        values={"s": lambda s_u: (s_u.size,)},
    )
    same(kernel(X), X[::-1])
    xs = jnp.stack([X + i for i in range(count)])
    same(jax.vmap(kernel)(xs), xs[:, ::-1])
    same(jge.graph(lambda x: kernel(kernel(x) + 1))(X), X + 1)
    u = np.array(X)
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        encoder.append(kernel, u, None)
    same(u, X[::-1])


def test_an_encoder_takes_an_array_per_member():
    out, total = np.zeros(4, np.float32), np.zeros((), np.float32)
    for _ in range(3):  # the third is a replay of a graph
        total[...] = 0
        with jge.Encoder(jax.devices("cpu")[0]) as encoder:
            encoder.append(f, np.array(BIAS), X, W, out, total, p=P, shift=0.5)
        same((out, total), expected())


def test_a_program_tells_its_members():
    [program] = jge.explain(lambda x: call(x), X).programs
    [_, node] = program.nodes
    uses = {use.parameter: (use.reads, use.writes) for use in node.uses}
    assert uses == {
        "bias": (True, False),
        "p.x": (True, False),
        "p.weights.w": (True, False),
        "p.out": (False, True),
        "p.sum": (True, True),
    }


def test_an_exported_function_is_of_the_format_that_has_members():
    exported = jax.export.export(jax.jit(lambda x: call(x)), disabled_checks=jge.export_checks())(X)
    assert _core.PROGRAM_VERSION >= 2
    assert "jax_graphenc.program.v2" in exported.mlir_module()
    again = jax.export.deserialize(exported.serialize())
    same(again.call(X), expected())
    plain = jax.export.export(
        jax.jit(lambda x: call(x, None)[0]), disabled_checks=jge.export_checks()
    )(X)
    assert "jax_graphenc.program.v2" in plain.mlir_module()


@pytest.mark.skipif("clang" in host.identity(), reason="GCC's checks")
def test_debug_mode_knows_the_arrays_of_members():
    wrong = make(SOURCE.replace("p.x[i] *", "p.x[i + 4] *"))
    with jge.options(debug=True):
        same(call(), expected())
        message = r"reads 4 bytes at offset 16 of 'p\.x' \(16 bytes\)"
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            call(kernel=wrong)[0].block_until_ready()
        unset = make(zero_init=())
        with pytest.warns(jge.UninitializedReadWarning, match=r"reads 'p\.sum' before anything"):
            call(kernel=unset)[1].block_until_ready()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"params": {"p.y": "in"}}, "params= names 'p.y'; the parameters are bias, p, p.x, p."),
        ({"params": {"p.x": "int"}}, "params={'p.x': 'int'}: `const float* p.x` is a pointer"),
        ({"scratch": {"p.x": 1}}, "scratch= names 'p.x'"),
    ],
)
def test_definitions_that_are_refused(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(**options)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: call(x=X.astype(int)), "input 'p.x' points to float; got int32"),
        (lambda: f(BIAS, X, p=P, shift=0.5), "takes 3 inputs (bias, p.x, p.weights.w); got 2"),
        (lambda: f(BIAS, X, W, shift=0.5), "keyword p is missing"),
        (
            lambda: f(BIAS, X, W, p={"n": 4, "x": X, "weights": (1,)}, shift=0.5),
            "'p' (Params) has no member 'x'; its members are n, weights. 'p.x' is a pointer, "
            "and so an input of its own, or an output",
        ),
        (
            lambda: f(BIAS, X, W, p=np.zeros((), "i8,i8,i8,i8,i8,i8")[()], shift=0.5),
            "'p' (Params) has no member 'f0'; its members are n, weights",
        ),
        (
            lambda: f(BIAS, X, W, p=(4, X, (1,)), shift=0.5),
            "'p' is a struct, Params {int n, Weights weights}: a tuple of 2",
        ),
    ],
)
def test_calls_that_are_refused(run, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        run()

"""Inputs that are ``None``: null pointers."""

import inspect
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge

pytestmark = pytest.mark.usefixtures("cpu")
X = jnp.arange(4, dtype=jnp.float32)
B = X + 10
SOURCE = r"""
extern "C" __global__ void f(const float* scale, const float* x, float* out, float a,
                             const float* bias = nullptr) {
  int i = threadIdx.x;
  out[i] = a * x[i] * (scale ? *scale : 1) + (bias ? bias[i] : 0);
}
"""


def f_reference(scale, x, bias, *, a):
    return a * x * (1 if scale is None else scale) + (0 if bias is None else bias)


def make(source=SOURCE, name="f", **options):
    launch = {"out_shape": lambda x: x, "grid": 1, "block": lambda x: x.size}
    return jge.cuda_kernel(source, name, **{**launch, **options})


f = make(reference=f_reference)
CALLS = [
    (None, X),
    (None, X, None),
    (jnp.float32(2), X, None),
    (None, X, B),
    (jnp.float32(2), X, B),
]


@pytest.mark.parametrize("inputs", CALLS)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jge.graph])
def test_an_absent_input_is_a_null_pointer(inputs, wrap):
    scale, x, bias = (*inputs, None)[:3]
    out = wrap(lambda x: f(scale, x, *inputs[2:], a=3.0))(x)
    np.testing.assert_array_equal(out, f_reference(scale, x, bias, a=3.0))


def test_a_null_pointer_as_default_is_one_of_the_python_function():
    assert str(inspect.signature(f)) == "(scale, x, bias=None, /, *, a)"
    assert repr(jax.make_jaxpr(lambda x: f(None, x, a=1.0))(X)).count("scale=None") == 1


def test_functions_of_shapes_get_none():
    seen = []
    kernel = make(block=lambda scale, x, bias: seen.append((scale, bias.shape)) or x.size)
    kernel(None, X, B, a=1.0)
    assert seen == [(None, (4,))]
    kernel = make(values={"a": lambda bias: 1 if bias is None else 2})
    np.testing.assert_array_equal(kernel(None, X), X)
    np.testing.assert_array_equal(kernel(None, X, B), 2 * X + B)


def test_derivatives_of_a_reference():
    for scale, bias in [(None, None), (jnp.float32(2), None), (None, B)]:
        grads = [
            jax.grad(lambda s, x, b, g=g: (g(s, x, b, a=3.0) ** 2).sum(), (0, 1, 2))(scale, X, bias)
            for g in (f, f_reference)
        ]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), *grads)
        assert [g is None for g in grads[0]] == [scale is None, False, bias is None]


def test_rules_of_the_users_own():
    reverse = make()

    def fwd(scale, x, bias, *, a):
        return reverse(scale, x, bias, a=a), (scale, bias)

    def bwd(residuals, cotangent, *, a):
        scale, bias = residuals
        assert scale is None
        return None, a * cotangent, None if bias is None else 5 * cotangent

    reverse.defvjp(fwd, bwd)
    grad = jax.grad(lambda x: reverse(None, x, a=3.0).sum())(X)
    np.testing.assert_array_equal(grad, 3 * jnp.ones(4))
    grads = jax.grad(lambda x, b: reverse(None, x, b, a=3.0).sum(), (0, 1))(X, B)
    np.testing.assert_array_equal(grads, [3 * jnp.ones(4), 5 * jnp.ones(4)])

    forward = make()

    def jvp(primals, tangents, *, a):
        assert [t is None for t in tangents] == [x is None for x in primals] == [True, False, True]
        return forward(*primals, a=a), 7 * tangents[1]

    forward.defjvp(jvp)
    out, tangent = jax.jvp(lambda x: forward(None, x, a=3.0), (X,), (X,))
    np.testing.assert_array_equal((out, tangent), (3 * X, 7 * X))


def test_a_rule_counts_all_inputs():
    kernel = make()
    kernel.defvjp(lambda s, x, b, *, a: (kernel(s, x, b, a=a), None), lambda r, ct, *, a: (ct,))
    message = r"one for each input \(scale, x, bias\); got 1"
    with pytest.raises(TypeError, match=message):
        jax.grad(lambda x: kernel(None, x, a=1.0).sum())(X)


@pytest.mark.parametrize("vmap", ["nodes", "sequential", "broadcast_all", "expand_dims"])
def test_batches(vmap):
    source = SOURCE.replace("threadIdx.x", "blockIdx.x * blockDim.x + threadIdx.x")
    kernel = make(source, vmap=vmap, grid=lambda x: x.size // 4, block=4)
    xs = jnp.stack([X, X + 1, X + 2])
    biases = jnp.stack([B, B + 1, B + 2])
    batched = jax.vmap(lambda s, x, b: kernel(s, x, b, a=2.0), (None, 0, 0))
    np.testing.assert_array_equal(batched(None, xs, biases), 2 * xs + biases)
    np.testing.assert_array_equal(batched(None, xs, None), 2 * xs)


def test_a_batching_rule_gets_none():
    def rule(size, batched, scale, x, bias, *, a):
        assert (size, batched, scale, bias) == (2, [False, True, False], None, None)
        return a * x, True

    kernel = make(vmap=rule)
    out = jax.vmap(lambda x: kernel(None, x, a=2.0))(jnp.stack([X, X]))
    np.testing.assert_array_equal(out[1], 2 * X)


def test_a_traced_value_beside_an_absent_input():
    out = jax.jit(lambda x, a: f(None, x, a=a))(X, 3.0)
    np.testing.assert_array_equal(out, 3 * X)
    grad = jax.grad(lambda a: f(None, X, B, a=a).sum())(3.0)
    assert grad == X.sum()
    out = jax.vmap(lambda a: f(None, X, a=a))(jnp.arange(3.0))
    np.testing.assert_array_equal(out, jnp.arange(3.0)[:, None] * X)


def test_rules_of_a_sharded_kernel_lose_what_is_absent():
    kernel = make(sharding="_, n, n -> n", reference=f_reference)
    np.testing.assert_array_equal(jax.jit(lambda x: kernel(None, x, a=1.0))(X), X)


def shape_of(x):
    return x


def test_a_kernel_with_absent_inputs_is_pickled():
    kernel = make(out_shape=shape_of, block=4)
    kernel(None, X, a=1.0)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kernel))(None, X, a=2.0), 2 * X)


def test_an_exported_function_keeps_null_pointers():
    exported = jax.export.export(
        jax.jit(lambda x: f(None, x, a=2.0)), disabled_checks=jge.export_checks()
    )(X)
    again = jax.export.deserialize(exported.serialize())
    np.testing.assert_array_equal(again.call(X), 2 * X)


def test_an_encoder_takes_none():
    out = np.zeros(4, np.float32)
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        encoder.append(f, None, X, out, None, a=2.0)
    np.testing.assert_array_equal(out, 2 * X)
    message = r"output 'out'.* got NoneType"
    with jge.Encoder(jax.devices("cpu")[0]) as encoder, pytest.raises(TypeError, match=message):
        encoder.append(f, None, X, None, None, a=2.0)


def test_debug_mode_reports_a_read_of_a_null_pointer():
    kernel = make(SOURCE.replace("(bias ? bias[i] : 0)", "bias[i]"))
    with (
        jge.options(debug=True),
        pytest.raises(
            jax.errors.JaxRuntimeError, match="reads 4 bytes at offset 0 of a null pointer"
        ),
    ):
        kernel(None, X, a=1.0).block_until_ready()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f(None, None, a=1.0), "has 1 output (out) to be shaped; out_shape gives 0"),
        (lambda: f(None, a=1.0), "takes 3 inputs (scale, x, bias); got 1"),
        (lambda: f(None, X, B, None, a=1.0), "takes 3 inputs (scale, x, bias); got 4"),
        (
            lambda: make(params={"x": "inout", "out": "in"})(None, None, X, a=1.0),
            "input 'x': an array is expected; got None. 'x' is updated in place, and only an input",
        ),
        (
            lambda: make(
                "template <class T> __global__ void f(const T* x, float* out) {}",
                "f<{x}>",
                out_shape=B,
            )(None),
            "input 'x' is None, so that {x} in the kernel's name, 'f<{x}>', stands for no type",
        ),
    ],
)
def test_what_cannot_be_absent(call, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        call()


def test_check_kernel_takes_none():
    jge.testing.check_kernel(f, None, X, a=2.0)
    wrong = make(reference=lambda scale, x, bias, *, a: x)
    with pytest.raises(AssertionError):
        jge.testing.check_kernel(wrong, None, X, B, a=2.0)


def test_autotune_takes_none():
    tuned = jge.autotune(make(), [{"block": 4}, {"block": 4, "shared_mem": 64}])
    np.testing.assert_array_equal(tuned(None, X, None, a=2.0), 2 * X)
    np.testing.assert_array_equal(tuned(None, X, a=2.0), 2 * X)

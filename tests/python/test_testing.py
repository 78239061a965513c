"""check_kernel passes what is right, and names what is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
import jax_graphenc.primitives.batching
from jax_graphenc.testing import check_kernel

SOURCE = r"""
template <class T> __global__ void square(const T* x, T* out, float a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = T(a) * x[i] * x[i];
}
extern "C" __global__ void product(const float* x, const int* k, float* y, int* n) {
  y[threadIdx.x] = k[threadIdx.x] * sinf(x[threadIdx.x]);
  n[threadIdx.x] = k[threadIdx.x] + 1;
}
extern "C" __global__ void cycle(const float* x, float* out) { asm("bar.sync 0;"); }
"""


def square(reference=lambda x, a: a * x * x, **more):
    return jge.cuda_kernel(
        SOURCE,
        "square<{x}>",
        out_shape=more.pop("out_shape", lambda x, a: x),
        grid=lambda x, a: x.size // 4,
        block=4,
        reference=reference,
        **more,
    )


def product(**more):
    return jge.cuda_kernel(
        SOURCE,
        "product",
        out_shape=lambda x, k: (x, k),
        grid=1,
        block=lambda x, k: x.size,
        **more,
    )


def sines(x, k):
    return k * jnp.sin(x), k + 1


X = jnp.linspace(0.5, 2.0, 8).reshape(2, 4)
K = jnp.arange(1, 5)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64"])
def test_a_right_kernel_passes(dtype):
    if dtype == "complex64":
        kernel = jge.cuda_kernel(
            "#include <cuComplex.h>\n"
            'extern "C" __global__ void square(const cuFloatComplex* x, cuFloatComplex* out) {\n'
            "  int i = threadIdx.x; out[i] = cuCmulf(x[i], x[i]); }",
            "square",
            out_shape=lambda x: x,
            grid=1,
            block=lambda x: x.size,
            reference=lambda x: x * x,
        )
        kernel.defvjp(lambda x: (kernel(x), x), lambda x, ct: (2 * x * ct,))
        check_kernel(kernel, X + 1j * X[::-1])
        return
    check_kernel(square(), X.astype(dtype), a=2.0)
    check_kernel(square(lambda x, a: (a * x * x).astype(x.dtype)), X.astype(dtype), a=2.0)


def test_rules_of_ones_own_pass():
    kernel = square()
    kernel.defjvp(lambda xs, ts, a: (kernel(xs[0], a=a), 2 * a * xs[0] * ts[0]))
    check_kernel(kernel, X, a=2.0)
    kernel.defvjp(lambda x, a: (kernel(x, a=a), x), lambda x, ct, a: (2 * a * x * ct,))
    check_kernel(kernel, X, a=2.0)
    check_kernel(product(reference=sines), X[0], K)


def test_a_wrong_value_is_named_with_its_element():
    kernel = square(lambda x, a: (a * x * x).at[1, 2].add(0.5))
    with pytest.raises(AssertionError) as caught:
        check_kernel(kernel, jnp.ones((2, 4)), a=2.0)
    text = str(caught.value)
    assert "kernel 'square<float>': output 'out'" in text
    assert "furthest off: at [1, 2] is 2.0, expected 2.5, difference 0.5" in text
    assert "Mismatched elements: 1 / 8" in text
    check_kernel(kernel, jnp.ones((2, 4)), a=2.0, atol=0.6, derivatives=False)


@pytest.mark.parametrize(("wrong", "said"), [(jnp.nan, "expected nan"), (jnp.inf, "expected inf")])
def test_what_is_not_finite_is_furthest_off(wrong, said):
    kernel = square(lambda x, a: (a * x * x).at[0, 1].set(wrong).at[1, 1].add(1.0))
    with pytest.raises(AssertionError, match=rf"at \[0, 1\] is 2.0, {said}"):
        check_kernel(kernel, jnp.ones((2, 4)), a=2.0)


def test_integers_are_compared_exactly():
    kernel = product(reference=lambda x, k: (k * jnp.sin(x), k + jnp.where(k == 3, 2, 1)))
    with pytest.raises(AssertionError, match=r"output 'n'\n.*at \[2\] is 4, expected 5"):
        check_kernel(kernel, X[0], K)
    check_kernel(kernel, X[0], K, atol=1)
    large = product(reference=lambda x, k: (k * jnp.sin(x), k + 1))
    check_kernel(large, X[0], K + 2**30)


def test_a_wrong_derivative_is_named():
    for reference in (lambda x, a: a * x * x, None):
        kernel = square(reference)
        kernel.defjvp(lambda xs, ts, a: (kernel(xs[0], a=a), 2.05 * a * xs[0] * ts[0]))  # noqa: B023
        with pytest.raises(AssertionError) as caught:
            check_kernel(kernel, X, a=2.0)
        assert "derivative of output 'out' by input 'x', against finite" in str(caught.value)
        kernel.defvjp(
            lambda x, a: (kernel(x, a=a), x),  # noqa: B023
            lambda x, ct, a: (1.95 * a * x * ct,),
        )
        with pytest.raises(AssertionError, match="gradient by input 'x', along a random direction"):
            check_kernel(kernel, X, a=2.0)
        check_kernel(kernel, X, a=2.0, derivatives=False) if reference else None


def test_a_derivative_that_is_a_little_wrong_is_seen_by_the_reference():
    kernel = square()
    kernel.defvjp(
        lambda x, a: (kernel(x, a=a), x),
        lambda x, ct, a: ((2 * a * x * ct).at[1, 3].multiply(1.001),),
    )
    with pytest.raises(AssertionError) as caught:
        check_kernel(kernel, X, a=2.0)
    assert "gradient by input 'x', against the reference's" in str(caught.value)
    assert "at [1, 3] is" in str(caught.value)
    kernel.defjvp(
        lambda xs, ts, a: (
            kernel(xs[0], a=a),
            (2 * a * xs[0] * ts[0]).at[1, 3].multiply(1.001),
        )
    )
    with pytest.raises(AssertionError, match=r"tangent of output 'out', against the reference's"):
        check_kernel(kernel, X, a=2.0)


def test_a_derivative_of_one_input_among_integers():
    kernel = product(reference=sines)
    for sign in (1, -1):
        kernel.defvjp(
            lambda x, k: (kernel(x, k), (x, k)),
            lambda kept, cts, sign=sign: (
                sign * kept[1] * jnp.cos(kept[0]) * cts[0],
                np.zeros(4, jax.dtypes.float0),
            ),
        )
        if sign == 1:
            check_kernel(kernel, X[0], K)
    with pytest.raises(AssertionError, match="gradient by input 'x'"):
        check_kernel(kernel, X[0], K)


def test_a_kernel_without_derivatives():
    count = jge.cuda_kernel(
        'extern "C" __global__ void next(const int* k, int* n) { n[threadIdx.x] = *k + 1; }',
        "next",
        out_shape=lambda k: k,
        grid=1,
        block=4,
        reference=lambda k: jnp.broadcast_to(k[0] + 1, (4,)),
    )
    check_kernel(count, K)
    count.defvjp(lambda k: (count(k), None), lambda _, ct: (np.zeros(4, jax.dtypes.float0),))
    check_kernel(count, K)


@pytest.mark.parametrize(
    "reference", [lambda x, a: (a * x * x)[0], lambda x, a: (a * x * x).astype("int32")]
)
def test_a_wrong_shape_or_dtype_is_named(reference):
    with pytest.raises(TypeError, match=r"kernel 'square<float>': its reference returns .*float32"):
        check_kernel(square(reference), X, a=2.0)


def widened(grid, vmap="broadcast_all"):
    return jge.cuda_kernel(
        'extern "C" __global__ void axpy(const float* x, const float* y, float* out, float a) {\n'
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "  out[i] = a * x[i] + y[i];\n}",
        "axpy",
        out_shape=lambda x, *_, **__: x,
        grid=grid,
        block=4,
        vmap=vmap,
        reference=lambda x, y, *, a: a * x + y,
    )


def test_batches_are_compared():
    def rule(axis_size, in_batched, x, y, *, a):
        wide = [
            v if b else jnp.broadcast_to(v, (axis_size, *v.shape))
            for v, b in zip((x, y), in_batched, strict=True)
        ]
        return a * wide[0] + y, True  # leaves an unbatched y as it is

    def grid(x, *_, **__):
        return x.size // 4

    x, y = X[0], X[1]
    check_kernel(widened(grid), x, y, a=2.0)
    check_kernel(widened(grid, rule), x, y, a=2.0)
    # What is not computed may hold a former batch's values, which may be right.
    with pytest.raises(AssertionError, match=r"'axpy': output 'out', in a batch of x(, y)?\n"):
        check_kernel(widened(1), x, y, a=2.0)
    with pytest.raises(AssertionError, match=r"'axpy': output 'out', in a batch of x\n"):
        check_kernel(widened(grid, "expand_dims"), x, y, a=2.0)


def test_a_batch_of_a_value_is_compared(monkeypatch):
    check_kernel(widened(lambda x, *_, **__: x.size // 4), X[0], X[1], a=2.0)
    # As if one launch could have several values.
    monkeypatch.setattr(jax_graphenc.primitives.batching, "_maps_a_value", lambda *_: False)
    with pytest.raises(AssertionError, match=r"'axpy': output 'out', in a batch of a\n"):
        check_kernel(widened(lambda x, *_, **__: x.size // 4), X[0], X[1], a=3.0)


def test_what_cannot_be_compared():
    with pytest.raises(ValueError, match="'square<float>' has no reference= to compare with"):
        check_kernel(square(None), X, a=2.0)
    with pytest.raises(TypeError, match="is no kernel"):
        check_kernel(jnp.sin, X)
    with pytest.raises(TypeError, match="missing"):
        check_kernel(square(), X)


@pytest.mark.usefixtures("cpu")
def test_the_source_runs_where_a_call_would_run_the_reference():
    wrong = square(lambda x, a: a * x, cpu="reference")
    with pytest.raises(AssertionError, match="output 'out'"):
        check_kernel(wrong, X, a=2.0)
    cycle = jge.cuda_kernel(
        SOURCE, "cycle", out_shape=lambda x: x, grid=1, block=1, reference=lambda x: x
    )
    with pytest.raises(jge.UnsupportedOnCpuError, match="inline PTX"):
        check_kernel(cycle, X)

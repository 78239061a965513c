"""Scratch memory: what a kernel works in, and a program has."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.compiler import host

pytestmark = pytest.mark.usefixtures("cpu")
X = jnp.arange(6, dtype=jnp.float32)
# Sums of neighbours, by way of what the first loop leaves in `work`.
SOURCE = r"""
extern "C" __global__ void f(const float* x, float* work, float* out, int n) {
  for (int i = 0; i < n; ++i) work[i] = 2 * x[i];
  for (int i = 0; i < n; ++i) out[i] = work[i] + work[i + 1 < n ? i + 1 : 0];
}
extern "C" __global__ void add(const float* x, float* out, int* count, int n) {
  for (int i = 0; i < n; ++i) out[i] = x[i] + count[0]++;
}
"""


def f_reference(x, *, n):
    return 2 * (x + jnp.roll(x, -1))


def make(name="f", **options):
    launch = {
        "out_shape": lambda x: x,
        "grid": 1,
        "block": 1,
        "values": {"n": lambda x: x.size},
    }
    return jge.cuda_kernel(SOURCE, name, **{**launch, **options})


SHAPE = {"work": lambda x: x}
f = make(params={"work": "scratch"}, scratch=SHAPE, reference=f_reference)
count = make("add", scratch={"count": jax.ShapeDtypeStruct((1,), jnp.int32)}, zero_init="count")


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jge.graph])
def test_scratch_memory_is_neither_given_nor_returned(wrap):
    np.testing.assert_array_equal(wrap(f)(X), f_reference(X, n=6))
    np.testing.assert_array_equal(wrap(lambda x: f(f(x)))(X), f_reference(f_reference(X, n=6), n=6))


def test_the_role_follows_from_the_size():
    np.testing.assert_array_equal(make(scratch=SHAPE)(X), f(X))


def test_scratch_memory_is_zeroed_where_asked():
    run = jax.jit(lambda x: count(count(x)))
    for _ in range(3):
        np.testing.assert_array_equal(run(X), X + 2 * jnp.arange(6))


def test_a_shape_may_depend_on_keywords():
    seen = []
    shape = lambda x, n: seen.append(n) or jax.ShapeDtypeStruct((n,), x.dtype)  # noqa: E731
    make(scratch={"work": shape})(X)
    assert seen == [6]


def test_a_program_shares_scratch_memory_over_time():
    [program] = jge.explain(jge.graph(lambda x: f(f(f(f(f(x)))))), X).programs
    of_work = {use.begin for node in program.nodes for use in node.uses if use.parameter == "work"}
    assert len(program.nodes) == 5
    assert len(of_work) < 5
    # Two of 256 bytes and more, and one of less; on the CPU 16 bytes behind each are no value's.
    assert program.scratch.bytes == 5 * 256


def test_derivatives_are_those_of_the_reference():
    grads = [jax.grad(lambda x, g=g: (g(x, n=6) ** 2).sum())(X) for g in (f, f_reference)]
    np.testing.assert_array_equal(*grads)


@pytest.mark.parametrize("size", [4, 6])
def test_each_element_of_a_batch_has_its_own(size):
    xs = jnp.arange(5 * size, dtype=jnp.float32).reshape(5, size) ** 2
    expected = jax.vmap(lambda x: f_reference(x, n=size))(xs)
    np.testing.assert_array_equal(jax.vmap(f)(xs), expected)
    nested = jax.vmap(jax.vmap(f))(jnp.stack([xs, xs + 1]))
    np.testing.assert_array_equal(nested[1], jax.vmap(lambda x: f_reference(x, n=size))(xs + 1))
    np.testing.assert_array_equal(jax.vmap(count)(xs), xs + jnp.arange(size))


def test_elements_of_a_batch_may_run_at_once():
    xs = jnp.arange(32, dtype=jnp.float32).reshape(8, 4)
    [program] = jge.explain(jax.vmap(f), xs).programs
    assert not any(node.after for node in program.nodes)
    places = [use.begin for node in program.nodes for use in node.uses if use.parameter == "work"]
    assert places == list(range(0, 8 * 256, 256))


@pytest.mark.parametrize("vmap", ["sequential", "broadcast_all", "expand_dims"])
def test_batches_by_other_methods(vmap):
    kernel = make(scratch=SHAPE, vmap=vmap, reference=f_reference)
    xs = jnp.arange(12, dtype=jnp.float32).reshape(3, 4)
    whole = vmap != "sequential"  # the kernel sees one array of all elements
    expected = f(xs.ravel()).reshape(3, 4) if whole else jax.vmap(f)(xs)
    np.testing.assert_array_equal(jax.vmap(kernel)(xs), expected)


def test_a_traced_value_beside_scratch_memory():
    out = jax.jit(lambda x, n: f(x, n=n))(X, 6)
    np.testing.assert_array_equal(out, f(X))


def test_an_exported_function_has_scratch_memory():
    exported = jax.export.export(jax.jit(f), disabled_checks=jge.export_checks())(X)
    again = jax.export.deserialize(exported.serialize())
    np.testing.assert_array_equal(again.call(X), f(X))


@pytest.mark.skipif("clang" in host.identity(), reason="GCC's checks")
def test_debug_mode_watches_scratch_memory():
    with jge.options(debug=True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            f(X).block_until_ready()
            count(X).block_until_ready()
        unset = make("add", scratch={"count": jax.ShapeDtypeStruct((1,), jnp.int32)})
        with pytest.warns(jge.UninitializedReadWarning, match="reads 'count' before anything"):
            unset(X).block_until_ready()
        small = make(scratch={"work": jax.ShapeDtypeStruct((5,), jnp.float32)})
        with pytest.raises(Exception, match=r"writes 4 bytes at offset 20 of 'work' \(20 bytes\)"):
            small(X).block_until_ready()


def test_an_encoder_allocates_or_takes_an_array():
    x, work, out, other = np.array(X), np.zeros(8, np.float32), np.zeros(6, np.float32), None
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        encoder.append(f, x, work, out)
        other = np.zeros(6, np.float32)
        encoder.append(f, x, None, other)
    np.testing.assert_array_equal(work[:6], 2 * X)
    np.testing.assert_array_equal(out, f(X))
    np.testing.assert_array_equal(other, f(X))
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        message = (
            "scratch memory 'work' has 16 bytes; scratch= asks for 24. Give a larger array, or None"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            encoder.append(f, x, work[:4], out)
        message = "scratch memory 'work' is a JAX array, which is immutable"
        with pytest.raises(TypeError, match=re.escape(message)):
            encoder.append(f, x, X, out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"params": {"work": "scratch"}},
            "'work' is scratch memory of unknown size: say scratch={",
        ),
        (
            {"scratch": {"x": 1}},
            "scratch= names 'x'; scratch memory is what a pointer without const",
        ),
        (
            {"scratch": {"y": 1}},
            "scratch= names 'y'; scratch memory is what a pointer without const",
        ),
        ({"scratch": ["work"]}, "scratch=['work']: a mapping is expected"),
        (
            {"params": {"out": "scratch"}, "scratch": {"work": X, "out": X}},
            "has no output: every pointer is const",
        ),
    ],
)
def test_definitions_that_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        make(**options)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (3, "scratch['work'] has 3, which has no shape and dtype; use jax.ShapeDtypeStruct"),
        (
            jax.ShapeDtypeStruct((4,), jnp.int32),
            "'work' points to float; scratch['work'] says int32",
        ),
        (lambda y: y, "a function that takes (y) cannot be called"),
    ],
)
def test_shapes_that_are_refused(shape, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        make(scratch={"work": shape})(X)


def test_scratch_memory_is_no_keyword():
    with pytest.raises(TypeError, match="'work' is scratch memory, which the program has"):
        f(X, work=X)

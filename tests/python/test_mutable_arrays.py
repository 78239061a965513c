"""Mutable arrays: kernels and regions take and give their values, and refuse the arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from squares import X, square, step

import jax_graphenc as jge


@pytest.mark.parametrize("function", [square, step])
def test_values_of_mutable_arrays(function):
    power = 2 if function is square else 4

    @jax.jit
    def update(ref, other):
        ref[...] = function(ref[...])
        other[1:] = function(ref[...])[1:]

    ref, other = jax.new_ref(jnp.asarray(X)), jax.new_ref(jnp.zeros(4))
    update(ref, other)
    np.testing.assert_allclose(ref[...], X**power, rtol=1e-6)
    np.testing.assert_allclose(other[...], [0, *X[1:] ** power**2], rtol=1e-6)
    update(ref, other)
    np.testing.assert_allclose(ref[...], X**power**2, rtol=1e-6)

    @jax.jit
    def inside(x):
        local = jax.new_ref(x)
        jax.lax.fori_loop(0, 2, lambda _, nothing: local.set(function(local[...])), None)
        return local[...]

    np.testing.assert_allclose(inside(X), X**power**2, rtol=1e-6)


def writes(ref):
    ref[...] = square(ref[...])


def makes(x):
    return jax.lax.cond(x[0] > 0, lambda: kept(x), lambda: x)


def kept(x):
    ref = jax.new_ref(x)
    ref[...] = square(ref[...])
    return ref[...]


@pytest.mark.parametrize("outer", [lambda f: f, jax.jit])
def test_a_region_refuses_mutable_arrays(outer):
    ref = jax.new_ref(jnp.asarray(X))

    def closes(x):
        ref[...] = square(x)
        return x

    for function, argument in ((writes, ref), (closes, X), (kept, X), (makes, X)):
        name = function.__name__
        with pytest.raises(TypeError, match=rf"region '{name}' uses a mutable array.*outside"):
            outer(jge.graph(function))(argument)
    np.testing.assert_array_equal(ref[...], X)


@pytest.mark.parametrize("outer", [lambda f: f, jax.jit])
def test_a_kernel_takes_the_value_of_a_mutable_array(outer):
    with pytest.raises(
        TypeError, match=r"kernel 'square': input 'x' is a mutable array .*\[\.\.\.\]"
    ):
        outer(lambda ref: square(ref))(jax.new_ref(jnp.asarray(X)))

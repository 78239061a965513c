"""Beside JAX's own tools: checkpoint policies, mutable arrays, printing, names, profiles."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import jax_graphenc as jge

SOURCE = r"""
extern "C" __global__ void square(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x];
}
extern "C" __global__ void twice(const float* x, const float* ct, float* y) {
  y[threadIdx.x] = 2 * x[threadIdx.x] * ct[threadIdx.x];
}
"""


def of(name):
    return jge.cuda_kernel(
        SOURCE, name, out_shape=lambda x, *_: x, grid=1, block=lambda x, *_: x.size
    )


square, twice = of("square"), of("twice")
square.defvjp(lambda x: (square(x), x), lambda x, ct: (twice(x, ct),))
step = jge.graph(lambda x: square(square(x)), name="two_steps")
X = np.asarray([0.5, 1.0, 1.5, 0.25], np.float32)


# ------------------------------------------------------------------ checkpoint policies

LENGTH = 2
policies = jax.checkpoint_policies


def nodes_per_layer(layer, policy):
    """Nodes of a value and its gradient through a scan, where XLA cannot share what is repeated."""
    layer = jax.checkpoint(layer, policy=policy)

    def loss(x):
        return jnp.sum(jax.lax.scan(lambda x, _: (layer(x), None), x, None, length=LENGTH)[0])

    function = jax.jit(jax.value_and_grad(loss))
    value, gradient = jax.block_until_ready(function(X))
    n = 8**LENGTH
    np.testing.assert_allclose(value, np.sum(X.astype("f8") ** n), rtol=1e-5)
    np.testing.assert_allclose(gradient, n * X.astype("f8") ** (n - 1), rtol=1e-5)
    jge.reset_stats()
    jax.block_until_ready(function(X))
    return jge.stats()["nodes"] / LENGTH


def kernels(x):
    y = checkpoint_name(square(x), "first")
    return square(checkpoint_name(square(y), "second"))


# Three forward, three backward, and what is not saved once more.
@pytest.mark.parametrize(
    ("policy", "again"),
    [
        (policies.nothing_saveable, 2),
        (policies.save_only_these_names("first"), 1),
        (policies.save_only_these_names("first", "second"), 0),
        (policies.everything_saveable, 0),
    ],
)
@pytest.mark.usefixtures("cpu")  # on a GPU XLA's graphs launch nodes that are counted once
def test_results_of_kernels_are_saved_by_name(policy, again):
    assert nodes_per_layer(kernels, policy) == 6 + again


@pytest.mark.parametrize(
    ("policy", "again"),
    [
        (policies.nothing_saveable, 2),
        # The region is run again as far as its own gradient needs it.
        (policies.save_only_these_names("state"), 1),
        (policies.everything_saveable, 0),
    ],
)
@pytest.mark.usefixtures("cpu")
def test_results_of_regions_are_saved_by_name(policy, again):
    def layer(x):
        return square(checkpoint_name(step(x), "state"))

    assert nodes_per_layer(layer, policy) == 6 + again


@pytest.mark.usefixtures("cpu")
def test_names_inside_a_region_are_not_seen():
    named = policies.save_only_these_names("first", "second")
    assert nodes_per_layer(jge.graph(kernels), named) == 8


# ------------------------------------------------------------------ mutable arrays


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


# ------------------------------------------------------------------ debugging


def test_without_jit():
    @jax.jit
    def f(x):
        return step(square(x)) + square(x)

    expected, gradient = f(X), jax.grad(lambda x: jnp.sum(f(x)))(X)
    with jax.disable_jit():
        np.testing.assert_array_equal(f(X), expected)
        np.testing.assert_allclose(jax.grad(lambda x: jnp.sum(f(x)))(X), gradient, rtol=1e-6)


@pytest.mark.parametrize("ordered", [False, True])
def test_printing_beside_and_inside_a_region(ordered, capsys):
    def prints(x):
        y = square(x)
        jax.debug.print("inside {}", y[2], ordered=ordered)
        return square(y)

    region = jge.graph(prints)

    @jax.jit
    def f(x):
        jax.debug.print("before {}", x[2], ordered=ordered)
        y = step(x)
        jax.debug.print("between {}", y[2], ordered=ordered)
        z = region(y)
        jax.debug.print("after {}", z[0], ordered=ordered)
        return z

    out = f(X)
    jax.effects_barrier()
    np.testing.assert_allclose(out, X**16, rtol=1e-6)
    lines = capsys.readouterr().out.splitlines()
    printed = ["before 1.5", "between 5.0625", "inside 25.62890625", "after 1.52587890625e-05"]
    assert (lines if ordered else sorted(lines)) == (printed if ordered else sorted(printed))


# ------------------------------------------------------------------ names


@jax.jit
def scoped(x):
    with jax.named_scope("outer"):
        y = square(x)
        with jax.named_scope("inner"):
            return step(y)


def test_scopes_and_names_are_in_what_is_lowered():
    lowered = jax.jit(scoped).lower(X)
    names = re.findall(r'op_name="([^"]*)"', lowered.compile().as_text())
    locations = re.findall(r'loc\("([^"]*)"', lowered.as_text(debug_info=True))
    for found in (names, locations):
        assert any(re.search(r"outer/jit\(square\)", name) for name in found), found
        assert any(re.search(r"outer/inner/.*two_steps/cuda_program", name) for name in found)


def test_scopes_inside_a_region_reach_what_xla_does_there():
    @jge.graph(name="three")
    def region(x):
        with jax.named_scope("between"):
            x = jnp.sin(square(x))
        return square(x)

    names = re.findall(r'op_name="([^"]*)"', jax.jit(region).lower(X).compile().as_text())
    assert any(re.search(r"three/between/sin", name) for name in names), names


def test_a_profile(tmp_path):
    jax.block_until_ready(scoped(X))
    with jax.profiler.trace(str(tmp_path)):
        out = jax.block_until_ready(scoped(X))
    np.testing.assert_allclose(out, X**8, rtol=1e-6)
    (path,) = tmp_path.rglob("*.xplane.pb")
    profile = jax.profiler.ProfileData.from_file(str(path))
    events = {e.name for plane in profile.planes for line in plane.lines for e in line.events}
    # The names of XLA's instructions are those of the primitives.
    assert any("cuda_kernel" in name for name in events)
    assert any("cuda_program" in name for name in events)

"""JAX's tools for looking in: disable_jit, printing, names in what is lowered, profiles."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from squares import X, square, step

import jax_graphenc as jge


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


GUARDED = r"""
extern "C" __global__ void first(const float* x, float* u, int last) {
  for (int i = threadIdx.x; i <= last; i += blockDim.x) u[i] = x[i % 64];
}
extern "C" __global__ void second(const float* u, float* out) {
  out[threadIdx.x] = u[threadIdx.x];
}
"""


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("size", [64, 60, 50])
def test_a_write_behind_a_value_that_lives_in_a_region_is_told(graphs, size):
    x = np.ones(size, np.float32)
    options = {"out_shape": lambda x, **_: x, "grid": 1, "block": size}
    first = jge.cuda_kernel(GUARDED, "first", **options)
    second = jge.cuda_kernel(GUARDED, "second", **{**options, "out_shape": lambda u: u})
    with jge.options(use_graphs=graphs):
        for last in (size - 1, size - 1, size - 1):
            jax.jit(jge.graph(lambda x, last=last: second(first(x, last=last))))(x)
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            jax.jit(jge.graph(lambda x: second(first(x, last=size))))(x).block_until_ready()
    assert f"kernel 'first', whose output 'u' has {4 * size} bytes, has written behind it" in str(
        caught.value
    )
    assert "debug=True" in str(caught.value)

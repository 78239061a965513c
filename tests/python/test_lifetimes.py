"""What is kept does not grow: objects are counted, and so is what is compiled, loaded and made."""

import collections
import gc

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from small_kernels import ONE, X, each, kernel, steps, steps_in_numpy
from squares import square

import jax_graphenc as jge
from jax_graphenc.calls.call import KernelCall
from jax_graphenc.programs.program import Program


def alive():
    """How many objects there are that hold kernels, by type."""
    gc.collect()
    kinds = (KernelCall, Program, core.Jaxpr, core.ClosedJaxpr)
    return collections.Counter(type(o).__name__ for o in gc.get_objects() if isinstance(o, kinds))


@each
def test_retraces_of_equal_functions_leave_everything_flat(wrap):
    """Sixteen functions, each with a closure over a constant of its own."""

    def once(k):
        offset = ONE * k
        f = jax.jit(wrap(lambda x: steps(x, offset, 5)))
        np.testing.assert_allclose(f(X), steps_in_numpy(np.asarray(X), k, 5), rtol=1e-6)
        f(X).block_until_ready()

    def several(first):
        for k in range(first, first + 8):
            once(float(k))
        jax.clear_caches()
        return alive()

    before = several(0)
    jge.reset_stats()
    assert several(8) <= before  # what other tests left may go
    stats = jge.stats()
    if wrap is jge.graph:
        assert stats["nodes"] == 80
    for what in ("compiled", "disk_hits", "images_loaded", "exec_evictions", "encoders"):
        assert stats[what] == 0, what
    # The graph of the last that died serves the next one.
    assert stats["instantiations"] <= 1


def test_what_is_derived_of_a_region_goes_with_it():
    def once():
        region = jge.graph(lambda x: square(square(x)))
        loss = lambda x: jnp.sum(region(x))  # noqa: E731
        jax.jit(jax.vmap(jax.grad(loss))).lower(jnp.ones((3, 4)))
        kept = alive()
        jax.clear_caches()
        return kept

    once()
    before = alive()
    assert once() > before  # newer versions of JAX have one class for open and closed jaxprs
    assert alive() == before


@each
def test_a_new_shape_on_every_call_is_bounded(wrap):
    """What a shape leaves goes with the kernels, and with JAX's caches."""

    def run(sizes):
        add = kernel("axpy", out_shape=lambda x, *_, **__: x)
        up = kernel("bump", params={"x": "inout"})

        @jax.jit
        @wrap
        def f(x):
            return up(add(add(x, x, a=1.0, n=x.size), x, a=1.0, n=x.size), n=x.size)

        for size in sizes:
            x = np.full(size, size, np.float32)
            for _ in range(2):  # the second time as a graph
                np.testing.assert_array_equal(f(x), 3 * x + 1)

    with jge.options(graph_cache_size=8):
        run(range(1, 31))
        jax.clear_caches()
        before = alive()
        jge.reset_stats()
        run(range(31, 61))
        jax.clear_caches()
        assert alive() == before
        stats = jge.stats()
        assert stats["nodes"] == 180
        assert stats["compiled"] == stats["images_loaded"] == stats["encoders"] == 0
        assert stats["exec_evictions"] == stats["instantiations"]
        # The graphs of programs that are gone serve those that come.
        jge.reset_stats()
        run([500])
        assert jge.stats()["nodes"] == 6
        assert jge.stats()["instantiations"] == 0


def test_what_a_kernel_keeps_of_its_calls_is_bounded():
    """Where the kernel stays."""
    add = kernel("axpy", out_shape=lambda x, *_, **__: x)
    shape = jax.ShapeDtypeStruct((300,), jnp.float32)
    before = alive()["KernelCall"]
    for n in range(1400):
        assert jax.eval_shape(lambda x, n=n: add(x, x, a=1.0, n=n), shape).shape == (300,)
        if n in (1200, 1399):
            jax.clear_caches()
            assert alive()["KernelCall"] - before <= 1024

"""NVIDIA Warp: one ``jax_callable`` of many launches, in each of its graph modes.

Warp reads the annotations of these functions, so they are types here and not strings.
"""

import warp as wp
from work import Batch, Chain, Independent, Loop

from peers import Jitted

wp.config.log_level = wp.LOG_WARNING

MODES = {
    "default": wp.JaxCallableGraphMode.JAX,
    "graph": wp.JaxCallableGraphMode.WARP,
    "staged graph": wp.JaxCallableGraphMode.WARP_STAGED,
    "graph, staged outside": wp.JaxCallableGraphMode.WARP_STAGED_EX,
}

Vector = wp.array(dtype=wp.float32)
Matrix = wp.array2d(dtype=wp.float32)


@wp.kernel
def add(x: Vector, a: wp.float32, out: Vector):
    i = wp.tid()
    out[i] = x[i] + a


@wp.func_native("for (int i = 0; i < n; ++i) x = fmaf(x, 1.0f, a); return x;")
def repeated(x: wp.float32, a: wp.float32, n: wp.int32) -> wp.float32: ...


@wp.kernel
def spin(x: Vector, a: wp.float32, n: wp.int32, out: Vector):
    i = wp.tid()
    out[i] = repeated(x[i], a, n)


def chain(kernels, mode):
    """x + kernels, by that many launches, in place."""

    def run(x: Vector):
        for _ in range(kernels):
            wp.launch(add, dim=x.shape, inputs=[x, 1.0], outputs=[x])

    return wp.jax_callable(run, graph_mode=mode, in_out_argnames=["x"])


def chain_out_of_place(kernels, mode):
    """The same into another array."""

    def run(x: Vector, out: Vector):
        wp.launch(add, dim=x.shape, inputs=[x, 1.0], outputs=[out])
        for _ in range(kernels - 1):
            wp.launch(add, dim=x.shape, inputs=[out, 1.0], outputs=[out])

    return wp.jax_callable(run, graph_mode=mode)


def independent(kernels, n, mode):
    """Row i of the result is x, i added n times."""

    def run(x: Vector, out: Matrix):
        for i in range(kernels):
            wp.launch(spin, dim=x.shape, inputs=[x, float(i), n], outputs=[out[i]])

    run_callable = wp.jax_callable(run, graph_mode=mode)
    return lambda x: run_callable(x, output_dims=(kernels, *x.shape))


class Warp(Jitted):
    """A way per mode; the CPU takes the first alone."""

    def __init__(self, gpu):
        self._modes = dict(list(MODES.items())[: None if gpu else 1])

    def functions(self, work):
        match work:
            case Chain(kernels, moving):
                make = chain_out_of_place if moving else chain
                arguments = (kernels,)
            case Loop(iterations, body):
                make, arguments = chain, (iterations * body,)
            case Independent(kernels, repetitions):
                make, arguments = independent, (kernels, repetitions)
            case Batch():
                return {}
        return {
            f"Warp, {name}": first(make(*arguments, mode)) for name, mode in self._modes.items()
        }


def first(function):
    """The only result of a callable, which returns a list."""
    return lambda x: function(x)[0]

"""Arrays that a derivative's rules use, and solvers whose parameters are trees, in regions."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.ode import odeint
from jax.extend.core import jaxprs_in_params

import jax_graphenc as jge
from jax_graphenc.primitives.region import region_p

SOURCE = r"""
extern "C" __global__ void twice(const float* x, float* out) {
  out[threadIdx.x] = 2 * x[threadIdx.x];
}
"""
X = jnp.linspace(0.5, 1, 4)
XS = jnp.stack([X, X + 0.5])


def make(**options):
    return jge.cuda_kernel(
        SOURCE,
        "twice",
        out_shape=lambda x: x,
        grid=1,
        block=lambda x: x.size,
        vmap="nodes",
        **options,
    )


twice = make(reference=lambda x: 2 * x)


def functions():
    """Functions that use arrays of their own, which live as long as they."""
    table = jnp.linspace(1, 2, 4)
    numbers = np.linspace(1, 3, 4)

    @jax.custom_jvp
    def forward(x):
        return jnp.sin(x) * table

    @jax.custom_vjp
    def reverse(x):
        return jnp.sin(x) * numbers

    forward.defjvp(lambda x, t: (forward(*x), jnp.cos(x[0]) * table * t[0]))
    reverse.defvjp(lambda x: (reverse(x), x), lambda x, g: (g * jnp.cos(x) * numbers,))
    referenced = make(reference=lambda x: 2 * x * (table / table))
    ruled = make()
    ruled.defvjp(lambda x: (ruled(x), x), lambda _, g: (2 * g * (numbers / numbers),))

    def root(x):
        return lax.custom_root(
            lambda y: y**3 - twice(x) * table,
            jnp.ones_like(x),
            lambda f, y: lax.fori_loop(0, 30, lambda _, y: y - f(y) / (3 * y**2), y),
            lambda g, y: y / g(jnp.ones_like(y)),
        )

    def solved(x):
        def solve(_, b):
            return b / (4 * table)

        return lax.custom_linear_solve(
            lambda v: 4 * v * table, twice(x), solve, solve, symmetric=True
        )

    return {
        "custom_jvp": lambda x: forward(twice(x)),
        "custom_vjp": lambda x: reverse(twice(x)),
        "reference": lambda x: referenced(jnp.sin(x)),
        "defvjp": lambda x: ruled(jnp.sin(x)),
        "custom_jvp in a loop": lambda x: lax.fori_loop(0, 3, lambda _, u: forward(twice(u)), x),
        "custom_vjp in a loop": lambda x: lax.fori_loop(0, 3, lambda _, u: reverse(twice(u)), x),
        "reference in a loop": lambda x: lax.fori_loop(0, 3, lambda _, u: referenced(u), x),
        "defvjp in a loop": lambda x: lax.fori_loop(0, 3, lambda _, u: ruled(jnp.sin(u)), x),
        "branches": lambda x: lax.cond(x[0] > 0, forward, jnp.sin, twice(x)),
        "custom_root": root,
        "custom_linear_solve": solved,
    }


def product(_, v):
    return 4 * v - 0.2 * twice(v)


def matrix(v):
    return jax.custom_derivatives.linear_call(product, product, None, v)


def flow(x):
    times = jnp.linspace(0.0, 1.0, 3)
    return odeint(lambda y, t: t - twice(y) * X, x, times)[-1]


SOLVERS = {
    "ode": flow,
    "cg": lambda x: jax.scipy.sparse.linalg.cg(matrix, x)[0],
    "bicgstab": lambda x: jax.scipy.sparse.linalg.bicgstab(matrix, x)[0],
    "gmres": lambda x: jax.scipy.sparse.linalg.gmres(matrix, x)[0],
}
FUNCTIONS = functions()
ONLY_REVERSE = ("custom_vjp", "defvjp")


def loss(f):
    return lambda x: jnp.sum(f(x) ** 2)


def reverse_mode(f):
    """All that reverse mode can do with a function, as one function."""
    gradient = jax.grad(loss(f))
    return lambda x, xs: (
        f(x),
        gradient(x),
        jax.vmap(gradient)(xs),
        jax.grad(lambda xs: jnp.sum(jax.vmap(f)(xs) ** 2))(xs),
        jax.grad(lambda x: jnp.sum(gradient(x) ** 2))(x),
        jax.grad(lambda x: jnp.sum(lax.scan(lambda c, _: (f(c), c), x, None, 2)[1]))(x),
        jax.grad(jax.checkpoint(loss(f)))(x),
    )


def forward_mode(f):
    return lambda x, _: (
        jax.jvp(f, (x,), (x,)),
        jax.linearize(f, x)[1](x),
        jax.linear_transpose(lambda t: jax.jvp(f, (x,), (t,))[1], x)(x),
        jax.hessian(loss(f))(x),
        jax.jacfwd(jax.jacfwd(f))(x),
    )


def check(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4), got, want)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_region_is_what_jit_is(name):
    f = FUNCTIONS[name]
    modes = [reverse_mode] if name.startswith(ONLY_REVERSE) else [reverse_mode, forward_mode]

    def all_of(f):
        return jax.jit(lambda x, xs: tuple(mode(f)(x, xs) for mode in modes))

    want = all_of(f)(X, XS)
    check(all_of(jge.graph(f))(X, XS), want)


def test_a_solver_in_a_strict_region_is_looked_into():
    region = jge.graph(FUNCTIONS["custom_root"])
    assert jge.explain(region, X).programs
    with pytest.raises(jge.GraphBreakError, match="scan, a loop or branch"):
        jge.graph(lambda x: FUNCTIONS["custom_root"](twice(x)), strict=True)(X)


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers(name):
    f = SOLVERS[name]

    def value_and_gradient(f):
        return jax.jit(lambda x: (f(x), jax.grad(loss(f))(x)))

    check(value_and_gradient(jge.graph(f))(X), value_and_gradient(f)(X))


@pytest.mark.parametrize("name", ["custom_jvp", "reference in a loop"])
def test_regions_in_regions(name):
    f = FUNCTIONS[name]
    got = jge.graph(jax.hessian(jge.graph(loss(jge.graph(f)))))(X)
    check(got, jax.jit(jax.hessian(loss(f)))(X))


@pytest.mark.parametrize("name", ["custom_jvp", "defvjp in a loop", "custom_linear_solve"])
def test_without_jit(name):
    region = jge.graph(FUNCTIONS[name])
    check(jax.grad(loss(region))(X), jax.grad(loss(FUNCTIONS[name]))(X))
    check(jax.vmap(jax.grad(loss(region)))(XS), jax.vmap(jax.grad(loss(FUNCTIONS[name])))(XS))


def regions(jaxpr):
    for eqn in jaxpr.eqns:
        if eqn.primitive is region_p:
            yield eqn.params["jaxpr"]
        for inner in jaxprs_in_params(eqn.params):
            yield from regions(inner)


def test_derived_jaxprs_have_no_constants_and_die_with_their_region():
    refs = []

    def once():
        for name, f in functions().items():
            region = jge.graph(f)
            run = jax.jit(lambda x, xs, region=region: reverse_mode(region)(x, xs))
            found = list(regions(jax.make_jaxpr(run)(X, XS).jaxpr))
            assert len(found) > 3, name
            assert not any(jaxpr.consts for jaxpr in found), name
            refs.extend((name, weakref.ref(jaxpr)) for jaxpr in found)

    once()
    jax.clear_caches()
    gc.collect()
    assert {name for name, ref in refs if ref() is not None} == set()

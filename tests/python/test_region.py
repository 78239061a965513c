"""Regions: jge.graph gives what jax.numpy gives, whole, under every transformation."""

import dataclasses
import functools
import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify, io_callback
from jax.extend.core import jaxprs_in_params
from jax.interpreters import partial_eval
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from other_process import run_on_cpu_devices

import jax_graphenc as jge
from jax_graphenc.primitives.kernel import kernel_p
from jax_graphenc.primitives.region import region_p

SOURCE = r"""
extern "C" __global__ void sine(const float* x, float* out) {
  out[threadIdx.x] = sinf(x[threadIdx.x]);
}
extern "C" __global__ void cosine(const float* x, float* out) {
  out[threadIdx.x] = cosf(x[threadIdx.x]);
}
extern "C" __global__ void product(const float* x, const float* y, float* out) {
  out[threadIdx.x] = x[threadIdx.x] * y[threadIdx.x];
}
extern "C" __global__ void axpy(const float* x, const float* y, float* out, float a) {
  out[threadIdx.x] = a * x[threadIdx.x] + y[threadIdx.x];
}
"""


def make(name, **options):
    return jge.cuda_kernel(
        SOURCE,
        name,
        out_shape=lambda x, *_, **__: x,
        grid=1,
        block=lambda x, *_, **__: x.size,
        vmap="sequential",
        **options,
    )


sine = make("sine")
cosine = make("cosine", reference=lambda x: jnp.cos(x))
product = make("product")
axpy = make("axpy", reference=lambda x, y, *, a: a * x + y)
sine.defvjp(lambda x: (sine(x), x), lambda x, g: (product(g, cosine(x)),))
product.defvjp(
    lambda x, y: (product(x, y), (x, y)),
    lambda xy, g: (product(g, xy[1]), product(g, xy[0])),
)


def step(x, y):
    z = product(sine(x), y)
    w = axpy(z, cosine(y), a=2.0)
    v = jnp.tanh(w) + 1  # what XLA compiles, between kernels
    u = product(sine(v), w)
    return u, axpy(u, z, a=0.5)


def step_in_numpy(x, y):
    z = jnp.sin(x) * y
    w = 2 * z + jnp.cos(y)
    u = jnp.sin(jnp.tanh(w) + 1) * w
    return u, 0.5 * u + z


# Kernels with references alone, which have forward mode too.
def forward_step(x, y):
    return axpy(cosine(x), y, a=3.0), cosine(axpy(x, x, a=0.5))


def forward_step_in_numpy(x, y):
    return 3 * jnp.cos(x) + y, jnp.cos(1.5 * x)


X = jnp.linspace(0.1, 1, 8)
Y = jnp.linspace(1, 2, 8)
XS = jnp.stack([X, X + 1, 2 * X])
YS = jnp.stack([Y, Y + 1, 2 * Y])


def check(got, want):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=1e-5), got, want)


def equations(jaxpr, *, inside=True):
    """All equations, nested ones too; those in regions if asked."""
    for eqn in jaxpr.eqns:
        yield eqn
        if inside or eqn.primitive is not region_p:
            for sub in jaxprs_in_params(eqn.params):
                yield from equations(sub, inside=inside)


def regions(function, *args, **kwargs):
    """The parameters of each region of a function that has no kernel outside of them."""
    eqns = list(equations(jax.make_jaxpr(function)(*args, **kwargs).jaxpr, inside=False))
    assert not any(eqn.primitive is kernel_p for eqn in eqns)
    return [eqn.params for eqn in eqns if eqn.primitive is region_p]


def loss(f):
    return lambda *args: sum(jnp.sum(jnp.square(out)) for out in f(*args))


def grad(f):
    return jax.grad(loss(f), (0, 1))


def scanned(f, wrap=lambda f: f):
    def run(x, y):
        return jax.lax.scan(lambda c, _: (wrap(f)(*c), c[0]), (x, y), None, length=3)

    return lambda x, y: jax.tree.leaves(run(x, y))


def scanned_state(f):
    return lambda x, y: scanned(f)(x, y)[:2]


def looped(f):
    def run(x, y):
        state = (x, y, 0)
        return jax.lax.while_loop(lambda s: s[2] < 3, lambda s: (*f(s[0], s[1]), s[2] + 1), state)

    return lambda x, y: run(x, y)[:2]


def branched(f):
    return lambda x, y: jax.lax.cond(x[0] > 0, f, lambda x, y: (x, y), x, y)


def donated(f):
    jitted = jax.jit(f, donate_argnums=(0, 1))
    return lambda x, y: jitted(x + 0, y + 0)


TRANSFORMATIONS = {
    "jit": (jax.jit, (X, Y)),
    "eager": (lambda f: f, (X, Y)),
    "donated": (donated, (X, Y)),
    "vmap": (jax.vmap, (XS, YS)),
    "vmap of one": (lambda f: jax.vmap(f, (0, None)), (XS, Y)),
    "vmap of axis 1": (lambda f: jax.vmap(f, (1, None), 1), (XS.T, Y)),
    "vmap of vmap": (lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None)), (XS, YS)),
    "grad": (grad, (X, Y)),
    "grad of the second": (lambda f: jax.grad(loss(f), 1), (X, Y)),
    "grad of one result": (lambda f: grad(lambda x, y: f(x, y)[:1]), (X, Y)),
    "jacrev": (jax.jacrev, (X, Y)),
    "vmap of grad": (lambda f: jax.vmap(grad(f)), (XS, YS)),
    "vmap of grad of one": (lambda f: jax.vmap(grad(f), (0, None)), (XS, Y)),
    "grad of vmap": (lambda f: grad(jax.vmap(f)), (XS, YS)),
    "grad of grad": (lambda f: jax.grad(lambda x, y: jnp.sum(grad(f)(x, y)[0] ** 2)), (X, Y)),
    "checkpoint": (lambda f: grad(jax.checkpoint(f)), (X, Y)),
    "checkpoint that saves": (
        lambda f: grad(jax.checkpoint(f, policy=jax.checkpoint_policies.everything_saveable)),
        (X, Y),
    ),
    "scan": (scanned, (X, Y)),
    "grad of scan": (lambda f: grad(scanned(f)), (X, Y)),
    "grad of scan of checkpoint": (lambda f: grad(scanned(f, jax.checkpoint)), (X, Y)),
    "while": (looped, (X, Y)),
    "cond": (branched, (X, Y)),
    "grad of cond": (lambda f: grad(branched(f)), (X, Y)),
    "vjp": (lambda f: lambda x, y: jax.vjp(f, x, y)[1]((x, y)), (X, Y)),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_a_region_gives_what_jax_numpy_gives(name):
    transform, args = TRANSFORMATIONS[name]
    region = jge.graph(step)
    check(jax.jit(transform(region))(*args), jax.jit(transform(step_in_numpy))(*args))
    # Kernels stay within regions through every rule.
    assert regions(transform(region), *args)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_a_region_outside_of_jit(name):
    transform, args = TRANSFORMATIONS[name]
    check(transform(jge.graph(step))(*args), jax.jit(transform(step_in_numpy))(*args))


@pytest.mark.parametrize("name", ["grad", "vmap of grad", "grad of scan", "cond", "grad of cond"])
def test_a_region_around_a_transformation(name):
    transform, args = TRANSFORMATIONS[name]
    want = transform(step_in_numpy)(*args)
    check(jax.jit(jge.graph(transform(step)))(*args), want)
    check(jge.graph(transform(jge.graph(step)))(*args), want)


@pytest.mark.parametrize(
    ("transform", "args"),
    [
        (lambda f: lambda x, y: jax.jvp(f, (x, y), (y, x)), (X, Y)),
        (lambda f: lambda x, y: jax.jvp(lambda x: f(x, y), (x,), (y,)), (X, Y)),
        (lambda f: lambda x, y: jax.linearize(f, x, y)[1](y, x), (X, Y)),
        (jax.jacfwd, (X, Y)),
        (lambda f: jax.hessian(lambda x, y: jnp.sum(f(x, y)[1] ** 2)), (X, Y)),
        (lambda f: jax.vmap(jax.jacfwd(f)), (XS, YS)),
        (lambda f: lambda x, y: jax.jvp(looped(f), (x, y), (y, x)), (X, Y)),
        (lambda f: lambda x, y: jax.jvp(jax.vmap(f), (x, y), (y, x)), (XS, YS)),
    ],
    ids=[
        *("jvp", "jvp of one", "linearize", "jacfwd"),
        *("hessian", "vmap of jacfwd", "jvp of while", "jvp of vmap"),
    ],
)
def test_forward_mode(transform, args):
    region = jge.graph(forward_step)
    want = transform(forward_step_in_numpy)(*args)
    check(transform(region)(*args), want)
    check(jax.jit(transform(region))(*args), want)
    assert regions(transform(region), *args)


def test_forward_mode_through_a_reverse_rule_is_refused_as_jax_does():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jit(lambda x: jax.jvp(jge.graph(sine), (x,), (x,)))(X)


# ---------------------------------------------------------------------- the function


def test_the_decorator_with_and_without_options():
    @jge.graph
    def plain(x, *, shift=1.0):
        """Says what it does."""
        return sine(x) + shift

    @jge.graph(name="other", strict=True)
    def named(x):
        return sine(x)

    assert plain.__name__ == "plain"
    assert plain.__doc__ == "Says what it does."
    assert str(inspect.signature(plain)) == "(x, *, shift=1.0)"
    ((one,), (two,)) = regions(plain, X), regions(named, X)
    assert (one["name"], one["strict"]) == ("plain", False)
    assert (two["name"], two["strict"]) == ("other", True)
    assert [p["strict"] for p in regions(grad(lambda x, _: (named(x),)), X, Y)] == [False, False]
    assert "jax_graphenc.program" in plain.lower(X).as_text()
    for f, expected in ((functools.partial(plain, shift=2.0), "plain"), (Scale(2.0), "Scale")):
        assert regions(jge.graph(f), X)[0]["name"] == expected


class Scale:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return axpy(x, x, a=self.by - 1)

    @functools.partial(jge.graph, static_argnums=0)
    def method(self, x):
        return axpy(x, x, a=self.by - 1)


def test_methods_and_callable_objects():
    check(Scale(3.0).method(X), 3 * X)
    check(Scale(4.0).method(x=X), 4 * X)
    check(jax.jit(Scale(5.0).method)(X), 5 * X)
    check(Scale.method(Scale(6.0), X), 6 * X)
    check(jge.graph(Scale(7.0))(X), 7 * X)
    (region,) = regions(Scale(3.0).method, X)
    assert region["name"] == "method"


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    x: jax.Array
    extra: object
    label: str = dataclasses.field(default="", metadata={"static": True})


def test_pytrees_in_and_out():
    @jge.graph
    def f(state, pair, nothing=None):
        assert (nothing, state.label) == (None, "here")
        x = product(state.x, pair["a"][0])
        return {"state": dataclasses.replace(state, x=x), "none": None, "pair": (x, [pair["b"]])}

    state = State(X, None, "here")
    for wrap in (lambda f: f, jax.jit):
        out = wrap(f)(state, {"a": (Y,), "b": 2.0})
        assert out["none"] is None
        assert (out["state"].extra, out["state"].label) == (None, "here")
        check(out["state"].x, X * Y)
        check(out["pair"], (X * Y, [2.0]))
    gradient = jax.grad(lambda s: jnp.sum(f(s, {"a": (Y,), "b": 2.0})["state"].x))(state)
    check(gradient.x, Y)
    batch = jax.vmap(f, in_axes=(State(0, None, "here"), {"a": None, "b": None}))
    check(batch(State(XS, None, "here"), {"a": (Y,), "b": 2.0})["state"].x, XS * Y)


@dataclasses.dataclass(frozen=True)
class Config:
    times: int


@pytest.mark.parametrize(
    "options",
    [{"static_argnums": (1, 2)}, {"static_argnames": ("times", "mode")}],
    ids=["numbers", "names"],
)
@pytest.mark.parametrize("disabled", [False, True])
def test_static_arguments_and_keywords(options, disabled):
    traced = []

    @functools.partial(jge.graph, **options)
    def f(x, times, mode="sine", *, y=None):
        traced.append((times, mode))
        for _ in range(times.times if isinstance(times, Config) else times):
            x = {"sine": sine, "cosine": cosine}[mode](x)
        return x if y is None else product(x, y)

    with jax.disable_jit(disabled):
        check(f(X, 2), jnp.sin(jnp.sin(X)))
        check(f(X, times=1, mode="cosine"), jnp.cos(X))
        check(f(x=X, times=Config(2), mode="cosine"), jnp.cos(jnp.cos(X)))
        check(f(X, 1, "cosine", y=Y), jnp.cos(X) * Y)
        check(jax.jit(lambda x: f(x, 0, y=x))(X), X * X)
        check(jax.grad(lambda y: jnp.sum(f(X, 1, y=y)))(Y), jnp.sin(X))
        check(jax.vmap(lambda x: f(x, 1))(XS), jnp.sin(XS))
        before = len(traced)
        f(X + 1, 2)
        assert len(traced) == before + disabled


def test_a_static_argument_may_be_a_pytree():
    @functools.partial(jge.graph, static_argnames="sizes")
    def f(x, sizes):
        assert sizes == (1, (2, None), "a")
        return sine(x)

    check(f(X, (1, (2, None), "a")), jnp.sin(X))


@pytest.mark.parametrize("name", ["jit", "eager", "vmap of one", "vmap of grad", "grad of scan"])
def test_what_a_function_closes_over(name):
    transform, args = TRANSFORMATIONS[name]
    table = np.linspace(0, 1, 8).astype(np.float32)
    array = jnp.asarray(table) + 1

    def closing(sin, mul):
        return lambda x, y: (mul(sin(x), array) + table, mul(y, y))

    region = jge.graph(closing(sine, product))
    want = transform(closing(jnp.sin, jnp.multiply))(*args)
    check(transform(region)(*args), want)
    check(jax.jit(transform(region))(*args), want)
    assert not any(params["jaxpr"].consts for params in regions(transform(region), *args))


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_tracers_of_outer_transformations_are_captured(wrap):
    def outer(f):
        def run(x, y):
            doubled = 2 * y
            return f(lambda x: step(x, doubled))(x)

        return run

    def outer_in_numpy(x, y):
        return step_in_numpy(x, 2 * y)

    check(wrap(grad(outer(jge.graph)))(X, Y), grad(outer_in_numpy)(X, Y))
    check(wrap(jax.vmap(outer(jge.graph)))(XS, YS), jax.vmap(outer_in_numpy)(XS, YS))
    check(
        wrap(jax.vmap(grad(outer(jge.graph)), (None, 0)))(X, YS),
        jax.vmap(grad(outer_in_numpy), (None, 0))(X, YS),
    )
    nested = jge.graph(lambda x, y: outer(jge.graph)(x, y))
    check(wrap(grad(nested))(X, Y), grad(outer_in_numpy)(X, Y))


def test_results_that_are_operands_constants_or_repeated():
    @jge.graph
    def f(x, n):
        y = sine(x)
        return x, y, 1.0, y, jnp.zeros(3), n, x, np.arange(2)

    for wrap in (lambda f: f, jax.jit):
        out = wrap(f)(X, 7)
        y = jnp.sin(X)
        check(out, (X, y, 1.0, y, jnp.zeros(3), 7, X, np.arange(2)))
        assert out[5].dtype == jnp.int32
        assert out[2].weak_type
        gradient = wrap(jax.grad(lambda x: sum(jnp.sum(o) for o in f(x, 7))))(X)
        check(gradient, 2 + 2 * jnp.cos(X))
        out = wrap(jax.vmap(f, (0, None), (0, 0, None, 0, None, None, 0, None)))(XS, 7)
        check(out, (XS, jnp.sin(XS), 1.0, jnp.sin(XS), jnp.zeros(3), 7, XS, np.arange(2)))


@pytest.mark.parametrize("result", [None, (), {"a": []}])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.vmap], ids=["eager", "jit", "vmap"])
def test_no_results(result, wrap):
    assert wrap(jge.graph(lambda x: (sine(x), result)[1]))(X[:, None]) == result


def test_no_arguments_and_no_kernels():
    check(jge.graph(lambda: sine(X))(), jnp.sin(X))
    check(jax.jit(jge.graph(lambda: jnp.ones(3)))(), jnp.ones(3))
    check(jax.grad(lambda x: jnp.sum(jge.graph(jnp.sin)(x)))(X), jnp.cos(X))


@pytest.mark.parametrize("fn", [3, "step", (sine,)])
def test_what_is_not_callable(fn):
    with pytest.raises(
        TypeError, match=r"jge\.graph: fn=.* is not callable: a function .* expected"
    ):
        jge.graph(fn)


def test_errors_name_the_users_function_and_argument():
    @jge.graph
    def f(values, *, threshold):
        return sine(values) if threshold > 0 else values

    with pytest.raises(jax.errors.TracerBoolConversionError) as error:
        f(X, threshold=1.0)
    assert "function f at" in str(error.value)
    assert "argument threshold" in str(error.value)


# ---------------------------------------------------------------------- integers, keys, effects


@pytest.mark.parametrize(
    "wrap", [pytest.param(lambda f: f, id="eager", marks=pytest.mark.slow), jax.jit]
)
def test_integers_and_keys_have_no_tangents(wrap):
    key = jax.random.key(0)

    def masked(sin, mul):
        def f(x, n, key):
            mask = jax.random.bernoulli(key, 0.5, x.shape).astype(x.dtype)
            return mul(sin(x), mask) * n, n + 1, mask > 0

        return f

    region, reference = jge.graph(masked(sine, product)), masked(jnp.sin, jnp.multiply)
    n = jnp.int32(3)
    check(wrap(region)(X, n, key), reference(X, n, key))

    def total(f):
        return lambda x, n, key: jnp.sum(f(x, n, key)[0]) * f(x, n, key)[1]

    check(wrap(jax.grad(total(region)))(X, n, key), jax.grad(total(reference))(X, n, key))
    got = wrap(jax.grad(total(region), 1, allow_int=True))(X, n, key)
    assert got.dtype == jax.dtypes.float0
    keys = jax.random.split(key, 3)
    axes = (None, None, 0)
    check(
        wrap(jax.vmap(jax.grad(total(region)), axes))(X, n, keys),
        jax.vmap(jax.grad(total(reference)), axes)(X, n, keys),
    )

    def with_aux(f):
        return jax.value_and_grad(
            lambda x: (jnp.sum(f(x, n, key)[0]), f(x, n, key)[1:]), has_aux=True
        )

    check(wrap(with_aux(region))(X), with_aux(reference)(X))


def test_tangents_and_cotangents_that_are_zero_stay_symbolic():
    region = jge.graph(lambda x, y: (cosine(x), cosine(y), axpy(x, y, a=2.0)))
    # With respect to x alone the second result has no tangent.
    (both,) = regions(lambda x: jax.jvp(lambda x: region(x, Y), (x,), (x,)), X)
    assert len(both["jaxpr"].out_avals) == 3 + 2
    forward, linear = regions(lambda x: jax.linearize(lambda x: region(x, Y), x)[1](x), X)
    assert len(linear["jaxpr"].out_avals) == 2
    names = [params["name"] for params in (both, forward, linear)]
    assert names == ["jvp(<lambda>)", "<lambda>", "jvp(<lambda>)"]
    _, tangents = jax.jvp(lambda x: region(x, Y), (X,), (X,))
    check(tangents, (-jnp.sin(X) * X, jnp.zeros(8), 2 * X))
    # With no tangent at all there is one region, the first.
    (only,) = regions(lambda x: jax.jvp(lambda x: (x, region(Y, Y)), (x,), (x,)), X)
    assert len(only["jaxpr"].out_avals) == 3
    # Nor is there a second where no result has one.
    above = jge.graph(lambda x, y: (x > 0.5, cosine(y)))
    (only,) = regions(lambda x: jax.jvp(lambda x: above(x, Y), (x,), (x,)), X)
    assert only["name"] == "<lambda>"
    # From the first result's cotangent alone nothing leads to y.
    _, backward = regions(
        lambda x, y: jax.grad(lambda x, y: region(x, y)[0].sum(), (0, 1))(x, y), X, Y
    )
    assert backward["name"] == "transpose(jvp(<lambda>))"
    assert len(backward["jaxpr"].out_avals) == 1
    check(jax.grad(lambda x, y: region(x, y)[0].sum(), (0, 1))(X, Y), (-jnp.sin(X), jnp.zeros(8)))


def test_a_cotangent_of_zero_leads_nowhere():
    @jax.custom_vjp
    def pick(a, b):
        return a + b

    region = jge.graph(lambda x, y: (cosine(x), cosine(y)))

    def f(x, y):
        return jnp.sum(pick(*region(x, y)))

    pick.defvjp(lambda a, b: (a + b, None), lambda _, g: (g, None))
    _, backward = regions(jax.grad(f, (0, 1)), X, Y)
    assert len(backward["jaxpr"].out_avals) == 1
    check(jax.grad(f, (0, 1))(X, Y), (-jnp.sin(X), jnp.zeros(8)))
    pick.defvjp(lambda a, b: (a + b, None), lambda _, g: (None, None))
    assert len(regions(jax.grad(f, (0, 1)), X, Y)) == 1
    check(jax.grad(f, (0, 1))(X, Y), (jnp.zeros(8), jnp.zeros(8)))


def test_residuals_that_are_known_already_are_no_results():
    # x and y are residuals of the product, and operands.
    forward, _ = regions(grad(jge.graph(lambda x, y: (product(x, y), product(y, x)))), X, Y)
    assert len(forward["jaxpr"].out_avals) == 2

    # s is a residual and a result; t is a residual alone.
    def f(sin, mul):
        def run(x):
            s, t = sin(x), sin(2 * x)
            return s, mul(s, s), mul(t, s) + mul(s, t)

        return run

    region = jge.graph(f(sine, product))
    forward, _ = regions(jax.grad(loss(region)), X)
    extra = forward["jaxpr"].out_avals[3:]
    assert len(extra) == 2  # t and 2 x
    check(jax.grad(loss(region))(X), jax.grad(loss(f(jnp.sin, jnp.multiply)))(X))


@jax.custom_jvp
def wrong(x):
    return jnp.sin(x)


# Not the derivative, so that it shows where it is used.
wrong.defjvp(lambda x, t: (wrong(*x), 3 * jnp.cos(x[0]) * t[0]))
wrong_kernel = make("sine")
wrong_kernel.defjvp(lambda x, t: (wrong_kernel(*x), x[0] * t[0]))

WRONG = {
    "plain": lambda x: wrong(wrong(x)),
    "kernel": lambda x: jax.lax.fori_loop(0, 3, lambda _, u: wrong_kernel(u), x),
    "fori_loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, u: wrong(u), x),
    "while_loop": lambda x: jax.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, wrong(c[1])), (0, x)
    )[1],
    "cond": lambda x: jax.lax.cond(x[0] > 0, lambda x: wrong(wrong(x)), jnp.cos, x),
    "checkpoint": jax.checkpoint(lambda x: jax.lax.fori_loop(0, 3, lambda _, u: wrong(u), x)),
}


@pytest.mark.parametrize("name", WRONG)
def test_rules_that_are_not_the_derivative_hold_as_in_jit(name):
    def tangent(f):
        return lambda x: jax.jvp(f, (x,), (x,))[1]

    def again(f):
        return lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, 2)[0]

    def all_of(f):
        forward = [
            jax.jacfwd(jax.jacfwd(f)),
            jax.jacfwd(jax.jacfwd(again(f))),
            jax.jacfwd(jax.jacfwd(jax.checkpoint(f))),
        ]
        reverse = [
            lambda x: jax.jvp(lambda x: jax.linearize(f, x)[1](x), (x,), (x,)),
            jax.hessian(lambda x: jnp.sum(f(x))),
            jax.grad(lambda x: jnp.sum(tangent(f)(x))),
            jax.grad(lambda x: jnp.sum(again(tangent(f))(x))),
        ]
        # JAX does not differentiate a while_loop in reverse, and loses the kernel's rule there.
        chosen = forward if name in ("while_loop", "kernel") else forward + reverse
        return jax.jit(lambda x: [transform(x) for transform in chosen])

    check(all_of(jge.graph(WRONG[name]))(X), all_of(jax.jit(WRONG[name]))(X))


def kernels(jaxpr):
    """The names of the kernels that a jaxpr calls."""
    return [e.params["call"].name for e in equations(jaxpr) if e.primitive is kernel_p]


def test_unused_results_take_their_kernels_with_them():
    region = jge.graph(lambda x, y: (sine(x), cosine(y), x))
    jaxpr = jax.make_jaxpr(region)(X, Y).jaxpr
    assert kernels(jaxpr) == ["sine", "cosine"]
    for used, left, operands in (
        ([True, False, False], ["sine"], [True, False]),
        ([False, True, False], ["cosine"], [False, True]),
        ([False, False, True], [], [True, False]),
        ([True, True, False], ["sine", "cosine"], [True, True]),
    ):
        pruned, needed = partial_eval.dce_jaxpr(jaxpr, used)
        assert (kernels(pruned), needed) == (left, operands)
        out = jax.core.eval_jaxpr(
            pruned, (), *(x for x, n in zip((X, Y), needed, strict=True) if n)
        )
        check(out, [v for v, u in zip((jnp.sin(X), jnp.cos(Y), X), used, strict=True) if u])
    pruned, needed = partial_eval.dce_jaxpr(jaxpr, [False] * 3)
    assert (pruned.eqns, needed) == ([], [False, False])

    def loud(x):
        jax.debug.callback(lambda _: None, product(x, x))
        return sine(x)

    jaxpr = jax.make_jaxpr(jge.graph(loud))(X).jaxpr
    pruned, needed = partial_eval.dce_jaxpr(jaxpr, [False])
    assert (kernels(pruned), needed) == (["product"], [True])


def test_a_collective_whose_result_is_unused_goes():
    region = jge.graph(lambda x: jax.lax.psum(sine(x), "i"))

    def mapped(x):
        jaxpr = jax.make_jaxpr(region)(x).jaxpr
        assert partial_eval.dce_jaxpr(jaxpr, [False])[0].eqns == []
        return x

    jax.vmap(mapped, axis_name="i")(XS)


def test_effects_pass_through():
    log = []

    def record(tag):
        return lambda value: log.append((tag, round(float(value), 3)))

    def f(x):
        y = sine(x)
        io_callback(record("a"), None, y[0], ordered=True)
        z = product(y, y)
        io_callback(record("b"), None, z[0], ordered=True)
        return z

    for wrap in (lambda f: f, jax.jit):
        log.clear()
        check(wrap(jge.graph(f))(X), jnp.sin(X) ** 2)
        jax.effects_barrier()
        assert [tag for tag, _ in log] == ["a", "b"]
    assert jax.make_jaxpr(jge.graph(f))(X).effects == jax.make_jaxpr(f)(X).effects != set()

    def unused(x):
        jge.graph(f)(x)
        return x

    log.clear()
    jax.jit(unused)(X)
    jax.effects_barrier()
    assert len(log) == 2

    def printing(x):
        y = sine(x)
        jax.debug.callback(record("c"), y[0])
        return product(y, y)

    log.clear()
    check(
        jax.jit(jax.grad(lambda x: jnp.sum(jge.graph(printing)(x))))(X), 2 * jnp.sin(X) * jnp.cos(X)
    )
    jax.effects_barrier()
    assert [tag for tag, _ in log] == ["c"]
    log.clear()
    jax.vmap(jge.graph(printing))(XS)
    jax.effects_barrier()
    assert len(log) == 3


def test_collectives_over_a_mapped_axis():
    def collective(sin, mul):
        def f(x, y):
            z = mul(sin(x), y)
            return mul(z, jax.lax.psum(z, "i")), y + jax.lax.axis_index("i"), jax.lax.axis_size("i")

        return f

    region, reference = jge.graph(collective(sine, product)), collective(jnp.sin, jnp.multiply)
    for wrap in (lambda f: f, jax.jit):
        for axes in ((0, 0), (0, None), (None, 0)):
            args = [xs if a == 0 else x for a, xs, x in zip(axes, (XS, YS), (X, Y), strict=True)]
            f, g = (jax.vmap(f, axes, axis_name="i") for f in (region, reference))
            check(wrap(f)(*args), g(*args))
            check(
                wrap(grad(lambda *a, f=f: f(*a)[:2]))(*args), grad(lambda *a, g=g: g(*a)[:2])(*args)
            )
        none = jax.vmap(lambda x: region(X, Y), axis_name="i")
        check(wrap(none)(XS), jax.vmap(lambda x: reference(X, Y), axis_name="i")(XS))


def test_the_mesh_axis_that_a_batch_is_spread_over():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    replicated = NamedSharding(mesh, PartitionSpec(None))
    region = jge.graph(lambda x: jax.lax.with_sharding_constraint(sine(x), replicated))
    mapped = jax.vmap(region, spmd_axis_name="d")
    check(jax.jit(mapped)(XS), jnp.sin(XS))
    (params,) = regions(mapped, XS)
    (spec,) = (
        eqn.params["sharding"].spec
        for eqn in equations(params["jaxpr"].jaxpr)
        if eqn.primitive.name == "sharding_constraint"
    )
    assert spec[0] == "d"


def test_checkify_checks_inside():
    def divide(x):
        return sine(x) / x

    def look_up(x):
        return product(x, x)[x.astype(int)[0] + 20]

    def user_check(x):
        checkify.check(jnp.all(x > 0), "not positive")
        return sine(x)

    def looped(x):
        return jax.lax.fori_loop(0, 3, lambda _, u: divide(u), x)

    def summed_gradient(f):
        return jax.grad(lambda x: jnp.sum(f(x)))

    def mapped(f):
        return lambda x: jax.vmap(f)(x[None])

    def checked(f):
        error, out = checkify.checkify(f, errors=checkify.all_checks)(X - X[0])
        message = error.get()
        return message and message.partition(" at ")[0].partition("\n")[0], out

    for f in (divide, look_up, user_check, looped):
        for around in (lambda f: f, jax.jit, mapped, summed_gradient):
            got, want = checked(around(jge.graph(f))), checked(around(jax.jit(f)))
            assert (got[0], want[0] is None) == (want[0], False), f
            check(got[1], want[1])
    assert checkify.checkify(jge.graph(divide), errors=checkify.all_checks)(X)[0].get() is None
    # The region stays one.
    (params,) = regions(lambda x: checkify.checkify(jge.graph(user_check))(x)[1], X)
    assert kernels(params["jaxpr"].jaxpr) == ["sine"]


def test_disable_jit_calls_the_function_itself():
    seen = []

    @jge.graph
    def f(x):
        seen.append(float(x[0]))  # a number, for a debugger to look at
        return product(sine(x), x)

    with jax.disable_jit():
        check(f(X), jnp.sin(X) * X)
        assert len(seen) == 1
        check(grad(jge.graph(step))(X, Y), grad(step_in_numpy)(X, Y))
        check(jax.vmap(jge.graph(step))(XS, YS), jax.vmap(step_in_numpy)(XS, YS))


# ---------------------------------------------------------------------- caches


def test_rules_are_derived_once():
    region = jge.graph(step)

    for transform, args in (
        (grad, (X, Y)),
        (jax.vmap, (XS, YS)),
        (lambda f: jax.vmap(grad(f)), (XS, YS)),
    ):
        # Each is another function, traced anew; what the region becomes is the same.
        one, two = (regions(lambda x, y, t=transform: t(region)(x, y), *args) for _ in range(2))
        assert one
        for a, b in zip(one, two, strict=True):
            assert a["jaxpr"] is b["jaxpr"]
    # Other shapes are another region.
    assert regions(region, X, Y)[0]["jaxpr"] is not regions(region, X[:4], Y[:4])[0]["jaxpr"]


# ---------------------------------------------------------------------- several devices


def summed(sin, mul, psum):
    def f(x, y):
        z = mul(sin(x), y)
        return (mul(z, z * psum(jnp.sum(z))),)

    return f


def sharded_checks():
    """Run in a process with four CPU devices."""
    assert len(jax.devices()) == 4
    region = jge.graph(step)
    x, y = jnp.linspace(0.1, 1, 16), jnp.linspace(1, 2, 16)
    both = jnp.stack([x, x + 1]), jnp.stack([y, y + 1])
    parts = x.reshape(4, 4), y.reshape(4, 4)
    check(jax.pmap(region)(*parts), jax.vmap(step_in_numpy)(*parts))
    spec = PartitionSpec("d")
    collective = jge.graph(summed(sine, product, lambda v: jax.lax.psum(v, "d")))
    # What happens inside of shard_map, what happens around it, and the arguments.
    cases = {
        "alone": (region, lambda f: f, step_in_numpy, (x, y)),
        "grad": (region, grad, grad(step_in_numpy), (x, y)),
        "vmap": (region, jax.vmap, jax.vmap(step_in_numpy), both),
        "vmap of grad": (region, lambda f: jax.vmap(grad(f)), jax.vmap(grad(step_in_numpy)), both),
        "grad inside": (grad(region), lambda f: f, grad(step_in_numpy), (x, y)),
        "region around": (step, lambda f: grad(jge.graph(f)), grad(step_in_numpy), (x, y)),
        "scan": (scanned_state(region), grad, grad(scanned_state(step_in_numpy)), (x, y)),
        "checkpoint": (jax.checkpoint(region), grad, grad(step_in_numpy), (x, y)),
        "psum": (collective, grad, grad(summed(jnp.sin, jnp.multiply, lambda v: v)), (x, y)),
    }
    for name, (inside, around, reference, args) in cases.items():
        want = jax.jit(reference)(*args)
        for kind, vma in itertools.product((AxisType.Auto, AxisType.Explicit), (True, False)):
            mesh = jax.make_mesh((4,), ("d",), axis_types=(kind,))
            f = around(
                jax.shard_map(
                    inside, mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma=vma
                )
            )
            for wrap in (lambda f: f, jax.jit) if name in ("alone", "grad") else (jax.jit,):
                print(f"{name}, {kind}, check_vma={vma}, {wrap}", flush=True)
                if kind is AxisType.Auto:
                    check(wrap(f)(*args), want)
                    continue
                with jax.set_mesh(mesh):
                    last = [PartitionSpec(*[None] * (a.ndim - 1), "d") for a in args]
                    put = [jax.device_put(a, p) for a, p in zip(args, last, strict=True)]
                    check(jax.tree.map(np.asarray, wrap(f)(*put)), want)
    # Sharded arrays that XLA partitions by itself.
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
    a, b = (jax.device_put(v, NamedSharding(mesh, spec)) for v in (x, y))
    check(jax.jit(grad(region))(a, b), grad(step_in_numpy)(x, y))


@pytest.mark.slow
def test_several_devices():
    run_on_cpu_devices("import test_region; test_region.sharded_checks()", 4)


@pytest.mark.parametrize("wrap", [lambda f: f, jge.graph])
def test_second_derivatives_of_references_in_loops(wrap):
    def f(cosine, x):
        return jnp.sum(jax.lax.fori_loop(0, 3, lambda _, u: cosine(u), x))

    x = jnp.linspace(0.1, 1, 4)
    want = jax.hessian(functools.partial(f, jnp.cos))(x)
    got = jax.hessian(wrap(functools.partial(f, cosine)))(x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)

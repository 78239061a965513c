"""Kernels and regions under every transformation of JAX, against the same function in jax.numpy.

Each cell of the matrix is a subject, a transformation and values; it runs on whatever platform JAX
has. What is special to kernels, regions or batches has a test file of its own.
"""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from other_process import run_on_cpu_devices

import jax_graphenc as jge

SOURCE = r"""
template <typename T>
__global__ void wave(const T* x, const T* y, T* out, T a) {
  out[threadIdx.x] = a * x[threadIdx.x] * y[threadIdx.x];
}
template <typename T>
__global__ void blend(const T* x, T* u, T a) {
  u[threadIdx.x] += a * x[threadIdx.x];
}
"""


def make(name, **options):
    return jge.cuda_kernel(
        SOURCE, name, grid=1, block=lambda x, *_, **__: x.size, vmap="nodes", **options
    )


wave_raw = make(
    "wave<{x}>", out_shape=lambda x, *_, **__: x, reference=lambda x, y, *, a: a * x * y
)
# In place, and a derivative of its own, in terms of kernels.
blend_raw = make("blend<{x}>", params={"u": "inout"})
blend_raw.defvjp(
    lambda x, u, *, a: (blend_raw(x, u, a=a), None),
    lambda _, g, *, a: (a * g, g),
)
blend_forward = make("blend<{x}>", params={"u": "inout"}, reference=lambda x, u, *, a: u + a * x)


def kernel(x, y):
    return (wave_raw(x, y, a=1.5),)


def kernel_in_numpy(x, y):
    return (1.5 * x * y,)


def kernel_with_rule(x, y):
    return (blend_raw(x, y, a=0.5),)


def kernel_with_rule_in_numpy(x, y):
    return (y + 0.5 * x,)


def step(x, y):
    z = wave_raw(x, y, a=2.0)
    w = blend_forward(z, jnp.sin(y), a=0.5)  # with XLA's own work between kernels
    return wave_raw(w, z, a=0.25), blend_forward(x, w, a=-1.0)


def step_in_numpy(x, y):
    z = 2 * x * y
    w = jnp.sin(y) + 0.5 * z
    return 0.25 * w * z, w - x


SUBJECTS = {
    "kernel": (kernel, kernel_in_numpy),
    "kernel with rule": (kernel_with_rule, kernel_with_rule_in_numpy),
    "region": (jge.graph(step), step_in_numpy),
    "region of one kernel": (jge.graph(kernel), kernel_in_numpy),
}

X = np.linspace(0.1, 1, 8, dtype=np.float32)
Y = np.linspace(1, 2, 8, dtype=np.float32)
XS = np.stack([X, X + 1, 2 * X])
YS = np.stack([Y, Y - 1, 3 * Y])


def check(got, want):
    def same(a, b):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    jax.tree.map(same, got, want)


def loss(f):
    return lambda *args: sum(jnp.sum(jnp.square(out)) for out in f(*args))


def grad(f):
    return jax.grad(loss(f), (0, 1))


def scanned(f):
    def body(carry, _):
        x, y = carry
        out = f(x, y)[0]
        return (out, y), out

    return lambda x, y: jax.lax.scan(body, (x, y), None, 3)


def scanned_rows(f):
    """The last row comes first."""
    return lambda xs, y: jax.lax.scan(lambda y, x: (f(x, y)[0], f(y, x)), y, xs, reverse=True)


def looped(f):
    def run(x, y):
        return jax.lax.fori_loop(0, 3, lambda i, s: (f(*s)[0], s[1]), (x, y))

    return run


def looped_while(f):
    """How often depends on the numbers, and so on the element of a batch."""

    def more(state):
        i, x, _ = state
        return (i < 4) & (jnp.sum(x) < 20)

    def run(x, y):
        return jax.lax.while_loop(more, lambda s: (s[0] + 1, f(*s[1:])[0] + 1, s[2]), (0, x, y))

    return run


def branched(f):
    return lambda x, y: jax.lax.cond(x[0] > 0.5, lambda x, y: f(x, y)[0], lambda x, y: y, x, y)


def donated(f):
    jitted = jax.jit(f, donate_argnums=(0, 1))
    return lambda x, y: jitted(jnp.array(x), jnp.array(y))


def exported(f):
    def run(x, y):
        made = jax.export.export(jax.jit(f), disabled_checks=jge.export_checks())(x, y)
        return jax.export.deserialize(made.serialize()).call(x, y)

    return run


def jvp(f):
    return lambda x, y: jax.jvp(f, (x, y), (y, x))


def checkpointed(f):
    return grad(jax.checkpoint(f))


TRANSFORMATIONS = {
    "alone": (lambda f: f, (X, Y)),
    "vmap": (jax.vmap, (XS, YS)),
    "vmap of one": (lambda f: jax.vmap(f, (None, 0)), (X, YS)),
    "vmap of axis 1": (lambda f: jax.vmap(f, (1, None), 1), (XS.T.copy(), Y)),
    "vmap of vmap": (lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None)), (XS, YS)),
    "grad": (grad, (X, Y)),
    "grad of grad": (lambda f: jax.grad(lambda x, y: loss(grad(f))(x, y)), (X, Y)),
    "jvp": (jvp, (X, Y)),
    "jvp of vmap": (lambda f: jvp(jax.vmap(f)), (XS, YS)),
    "vmap of jvp": (lambda f: jax.vmap(jvp(f)), (XS, YS)),
    "jacfwd": (jax.jacfwd, (X, Y)),
    "jacrev": (jax.jacrev, (X, Y)),
    "vmap of grad": (lambda f: jax.vmap(grad(f)), (XS, YS)),
    "grad of vmap": (lambda f: grad(jax.vmap(f)), (XS, YS)),
    "grad of vmap of one": (lambda f: grad(jax.vmap(f, (0, None))), (XS, Y)),
    "checkpoint": (checkpointed, (X, Y)),
    "vmap of checkpoint": (lambda f: jax.vmap(checkpointed(f)), (XS, YS)),
    "checkpoint of vmap": (lambda f: checkpointed(jax.vmap(f)), (XS, YS)),
    "scan": (scanned, (X, Y)),
    "scan of rows": (scanned_rows, (XS, Y)),
    "scan of vmap": (lambda f: scanned(jax.vmap(f)), (XS, YS)),
    "vmap of scan": (lambda f: jax.vmap(scanned(f)), (XS, YS)),
    "grad of scan": (lambda f: grad(lambda x, y: scanned(f)(x, y)[1:]), (X, Y)),
    "grad of vmap of scan": (lambda f: grad(jax.vmap(lambda x, y: scanned(f)(x, y)[1:])), (XS, YS)),
    "fori_loop": (looped, (X, Y)),
    "while_loop": (looped_while, (X, Y)),
    "vmap of while_loop": (lambda f: jax.vmap(looped_while(f)), (XS, YS)),
    "cond": (branched, (X, Y)),
    "vmap of cond": (lambda f: jax.vmap(branched(f)), (XS, YS)),
    "grad of cond": (lambda f: grad(lambda x, y: (branched(f)(x, y),)), (XS[1], Y)),
    "donated": (donated, (X, Y)),
    "donated vmap": (lambda f: donated(jax.vmap(f)), (XS, YS)),
    "exported": (exported, (X, Y)),
    "exported vmap": (lambda f: exported(jax.vmap(f)), (XS, YS)),
    "exported grad": (lambda f: exported(grad(f)), (X, Y)),
}
FORWARD = ("jvp", "jacfwd")
ONCE = ("donated", "exported")  # jitted within
CELLS = [
    (subject, name)
    for subject in SUBJECTS
    for name in TRANSFORMATIONS
    # JAX differentiates a custom_vjp in reverse only.
    if subject != "kernel with rule" or not any(mode in name for mode in FORWARD)
]
EAGER = ("alone", "vmap", "grad", "jvp", "scan", "cond")


@functools.cache
def wanted(in_numpy, name):
    transform, args = TRANSFORMATIONS[name]
    return jax.jit(transform(in_numpy))(*args)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize(("subject", "name"), CELLS)
def test_a_cell(subject, name):
    """Under jit, and with a region around all of it."""
    transform, args = TRANSFORMATIONS[name]
    f, in_numpy = SUBJECTS[subject]
    before = jax.tree.map(np.copy, args)
    want = wanted(in_numpy, name)
    if name.startswith(ONCE):
        check(transform(f)(*args), want)
    else:
        check(together(transform(f), jge.graph(transform(f)))(*args), (want, want))
    jax.tree.map(np.testing.assert_array_equal, args, before)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        pytest.param(subject, name, marks=[] if name in EAGER else pytest.mark.slow)
        for subject, name in CELLS
        if not name.startswith(ONCE)
    ],
)
def test_a_cell_outside_of_jit(subject, name):
    transform, args = TRANSFORMATIONS[name]
    f, in_numpy = SUBJECTS[subject]
    before = jax.tree.map(np.copy, args)
    check(transform(f)(*args), wanted(in_numpy, name))
    jax.tree.map(np.testing.assert_array_equal, args, before)


@pytest.mark.parametrize("name", ["alone", "vmap", "vmap of vmap", "vmap of grad", "grad of vmap"])
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_cell_in_64_bits(subject, name):
    transform, args = TRANSFORMATIONS[name]
    f, in_numpy = SUBJECTS[subject]
    with jax.enable_x64(True):
        args = [jnp.asarray(x, jnp.float64) for x in args]
        got, want = together(transform(f), transform(in_numpy))(*args)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-12), got, want)
        assert {x.dtype for x in jax.tree.leaves(got)} == {jnp.dtype(jnp.float64)}


def together(*functions):
    """Compiled as one: the results of each."""
    return jax.jit(lambda *args: tuple(f(*args) for f in functions))


# ---------------------------------------------------------------------- several devices


def on_axis_1(f):
    mapped = jax.vmap(f, (0, 1), 1)
    return lambda x, y: tuple(out.T for out in mapped(x, y.T))


# What happens inside of shard_map, what happens around it, and whether its parts are of a batch's
# elements or of an element.
SHARDED = {
    "of elements": (lambda f: f, lambda f: f, False),
    "vmap around": (lambda f: f, jax.vmap, False),
    "grad": (lambda f: f, grad, False),
    "grad of vmap around": (lambda f: f, lambda f: grad(jax.vmap(f)), False),
    "vmap of grad around": (lambda f: f, lambda f: jax.vmap(grad(f)), False),
    "vmap": (jax.vmap, lambda f: f, True),
    "vmap of axis 1": (on_axis_1, lambda f: f, True),
    "grad of vmap": (jax.vmap, grad, True),
    "vmap of grad": (lambda f: jax.vmap(grad(f)), lambda f: f, True),
    "jvp of vmap": (lambda f: jvp(jax.vmap(f)), lambda f: f, True),
    "checkpoint of vmap": (lambda f: jax.checkpoint(jax.vmap(f)), grad, True),
    "scan of vmap": (lambda f: lambda x, y: scanned(jax.vmap(f))(x, y)[0], lambda f: f, True),
}


def check_sharded(eager):
    """Over all devices that there are; run where there are several, too.

    Compiling is what takes the time, so what can be is one jitted function.
    """
    n = len(jax.devices())
    mesh = jax.make_mesh((n,), ("d",), axis_types=(AxisType.Auto,))
    rows = np.arange(2 * n, dtype=np.float32)[:, None] / 8
    batch = X + rows, Y - rows
    for subject, (f, in_numpy) in SUBJECTS.items():
        for name, (inside, around, of_batch) in SHARDED.items():
            if subject == "kernel with rule" and any(mode in name for mode in FORWARD):
                continue
            batched = of_batch or "vmap" in name
            args = batch if batched else (X, Y)
            spec = PartitionSpec("d")
            print(f"{subject}, {name}", flush=True)
            want = jax.jit(around(inside(in_numpy)))(*args)
            mapped = jax.shard_map(inside(f), mesh=mesh, in_specs=spec, out_specs=spec)
            unchecked = jax.shard_map(
                inside(f), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
            )
            if eager:
                check(around(mapped)(*args), want)
            check(together(around(mapped), around(unchecked))(*args), (want, want))
        # An operand that every device has whole, and so does not vary.
        print(f"{subject}, an operand that is everywhere", flush=True)
        insides = lambda f: jax.vmap(f, (0, None)), lambda f: grad(jax.vmap(f, (0, None)))
        mapped = [
            jax.shard_map(
                lambda x, y, inside=inside, f=f: inside(f)(x, y)[:1],
                mesh=mesh,
                in_specs=(PartitionSpec("d"), PartitionSpec()),
                out_specs=PartitionSpec("d"),
            )
            for inside in insides
        ]
        want = tuple(inside(in_numpy)(batch[0], Y)[:1] for inside in insides)
        check(together(*mapped)(batch[0], Y), want)
        # XLA brings together what a kernel takes whole.
        transforms = jax.vmap, lambda f: grad(jax.vmap(f)), lambda f: jax.vmap(grad(f))
        want = together(*(transform(in_numpy) for transform in transforms))(*batch)
        for spec in (PartitionSpec("d"), PartitionSpec(None, "d"), PartitionSpec()):
            print(f"{subject}, sharded jit, {spec}", flush=True)
            put = [jax.device_put(x, NamedSharding(mesh, spec)) for x in batch]
            check(together(*(transform(f) for transform in transforms))(*put), want)


def test_on_the_devices_that_are_here():
    check_sharded(eager=jax.devices()[0].platform != "cpu")


@pytest.mark.slow
def test_on_several_devices():
    run_on_cpu_devices(
        "import test_transformations as t; t.check_sharded(eager=True)", 4, timeout=600
    )

"""Random programs of kernels and jax.numpy equal the same programs with the kernels' references.

A program is drawn as text would be: statements that rebind three arrays, some of them loops,
branches, maps and regions with programs of their own. It runs under a random transformation and in
a random setting of the options. ``make fuzz`` sets JAX_GRAPHENC_FUZZ_EXAMPLES; each example
compiles two functions, so that a quarter of these run.
"""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import AxisType, PartitionSpec
from other_process import run_on_cpu_devices

import jax_graphenc as jge
from jax_graphenc import _core

EXAMPLES = int(os.environ.get("JAX_GRAPHENC_FUZZ_EXAMPLES", "60")) // 4 + 1
SIZE = 6

pytestmark = pytest.mark.usefixtures("cpu")

SOURCE = r"""
extern "C" __global__ void blend(const float* x, const float* y, float* out, float a, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = a * x[i] + 0.5f * y[n - 1 - i];
}
extern "C" __global__ void damp(float* u, const float* x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) u[i] = 0.5f * u[i] * x[i];
}
extern "C" __global__ void wave(const float* x, float* s, float* c, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    s[i] = sinf(x[i]);
    c[i] = cosf(x[i]);
  }
}
extern "C" __global__ void shift(const float* x, const int* k, float* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = x[i] + 0.125f * *k;
}
extern "C" __global__ void gather(const float* x, float* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&out[i], x[i]);
}
"""


def like_first(x, *_, **__):
    return x


REFERENCES = {
    "blend": lambda x, y, *, a, n: a * x + 0.5 * y[::-1],
    "damp": lambda u, x, *, n: 0.5 * u * x,
    "wave": lambda x, *, n: (jnp.sin(x), jnp.cos(x)),
    "shift": lambda x, k, *, n: x + 0.125 * k,
    "gather": lambda x, *, n: x,
}
OPTIONS = {
    "blend": {"out_shape": like_first},
    "damp": {"params": {"u": "inout"}},
    "wave": {"out_shape": lambda x, **_: (x, x)},
    "shift": {"out_shape": like_first},
    "gather": {"out_shape": like_first, "zero_init": ("out",)},
}


def kernels(vmap):
    """The kernels, with derivatives from their references."""
    common = {"grid": 1, "block": 4, "values": {"n": lambda x, *_, **__: x.size}, "vmap": vmap}
    made = {
        name: jge.cuda_kernel(SOURCE, name, reference=REFERENCES[name], **common, **options)
        for name, options in OPTIONS.items()
    }
    # The first parameter is no x.
    made["damp"] = jge.cuda_kernel(
        SOURCE,
        "damp",
        reference=REFERENCES["damp"],
        **{**common, "values": {"n": lambda u, x: u.size}},
        **OPTIONS["damp"],
    )
    return made


KERNELS = {vmap: kernels(vmap) for vmap in ("nodes", "sequential")}
IN_NUMPY = {name: functools.partial(f, n=SIZE) for name, f in REFERENCES.items()}


@jax.custom_jvp
def bent(x):
    return jnp.tanh(x)


bent.defjvp(lambda x, t: (bent(*x), (1 - bent(*x) ** 2) * t[0] * TABLE / TABLE))
TABLE = jnp.linspace(1, 2, SIZE)

# What a statement does with kernels, three arrays and a number: new arrays.
STEPS = {
    "blend": lambda k, x, y, z, i: [k["blend"](x, y, a=0.5)],
    "blend with a traced value": lambda k, x, y, z, i: [k["blend"](x, y, a=jnp.cos(z[1]))],
    "damp": lambda k, x, y, z, i: [k["damp"](x, y)],
    "wave": lambda k, x, y, z, i: list(k["wave"](x)),
    "shift": lambda k, x, y, z, i: [k["shift"](x, jnp.asarray(i, jnp.int32))],
    "shift by arithmetic": lambda k, x, y, z, i: [
        k["shift"](x, jnp.asarray((i << 1) - abs(i - 2) % 3, jnp.int32))
    ],
    "gather": lambda k, x, y, z, i: [k["gather"](x)],
    "sine": lambda k, x, y, z, i: [jnp.sin(x)],
    "rule with a table": lambda k, x, y, z, i: [bent(x)],
    "where": lambda k, x, y, z, i: [jnp.where(x > 0.25, y, 0.5 * z)],
    "sum": lambda k, x, y, z, i: [0.5 * (x + y)],
    "normalize": lambda k, x, y, z, i: [x / (1 + jnp.sum(x * x))],
    "rotate": lambda k, x, y, z, i: [jnp.concatenate([x[2:], y[:2]])],
    "swap": lambda k, x, y, z, i: [y, x],
    "element of the index": lambda k, x, y, z, i: [x.at[1].set(y[i % SIZE])],
    "zeros": lambda k, x, y, z, i: [jnp.zeros_like(x)],
}
COMPOUND = [
    *("fori", "reverse scan", "while", "cond", "switch", "region", "checkpoint", "map", "jit"),
]
places = st.integers(0, 2)
steps = st.tuples(st.sampled_from(sorted(STEPS)), places, places, places, places)
programs = st.recursive(
    st.lists(steps, min_size=1, max_size=4),
    lambda body: st.lists(
        st.one_of(steps, st.tuples(st.sampled_from(COMPOUND), st.integers(1, 3), body)),
        min_size=1,
        max_size=3,
    ),
    max_leaves=5,
)


def run(program, k, arrays, i):
    """Does a program's statements; ``i`` is the counter of the innermost loop."""
    arrays = list(arrays)
    for kind, *rest in program:
        if kind in STEPS:
            x, y, z, to = rest
            for offset, made in enumerate(STEPS[kind](k, arrays[x], arrays[y], arrays[z], i)):
                arrays[(to + offset) % 3] = made
        else:
            arrays = list(run_nested(kind, *rest, k, tuple(arrays), i))
    return tuple(arrays)


def run_nested(kind, count, body, k, arrays, i):
    def inner(*arrays):
        return run(body, k, arrays, i)

    if kind == "fori":
        return lax.fori_loop(0, count, lambda j, c: run(body, k, c, j), arrays)
    if kind == "while":
        # Ends by data, too, which differs from element to element of a batch.
        def more(c):
            return (c[0] < count) & (jnp.sum(c[1]) < 4)

        return lax.while_loop(more, lambda c: (c[0] + 1, *run(body, k, c[1:], 1)), (0, *arrays))[1:]
    if kind == "cond":
        return lax.cond(arrays[0][0] > 0.5, inner, lambda x, y, z: (z, x, y), *arrays)
    if kind == "switch":
        return lax.switch(i, [lambda *c: c, inner, lambda x, y, z: inner(y, z, x)], *arrays)
    if kind == "region":
        return region_of(k)(inner)(*arrays)
    if kind == "checkpoint":
        return jax.checkpoint(inner)(*arrays)
    if kind == "jit":
        return jax.jit(inner)(*arrays)
    if kind == "map":
        rows = jnp.stack([*arrays, arrays[0]])
        x, y, z = lax.map(lambda row: run(body, k, (row, arrays[1], row), i), rows)
        return x[3], y[1], z[2]

    def advance(c, row):
        c = run(body, k, c, count)
        return c, 0.5 * (row + c[0])

    rows = jnp.stack(arrays)
    c, rows = lax.scan(advance, arrays, rows[:count], reverse=True)
    return c[0], rows[0], c[2]


def region_of(k):
    return (lambda f: f) if k is IN_NUMPY else jge.graph


def total(f):
    return lambda *arrays: sum(jnp.sum(out * (n + 1)) for n, out in enumerate(f(*arrays)))


def grad(f):
    return jax.grad(total(f), (0, 1, 2))


def jvp(f):
    return lambda x, y, z: jax.jvp(f, (x, y, z), (y, z, x))


def over_devices(f):
    mesh = jax.make_mesh((len(jax.devices()),), ("d",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("d")
    mapped = jax.shard_map(jax.vmap(f), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    n = len(jax.devices())
    return lambda *arrays: mapped(*(jnp.stack([x + 0.1 * j for j in range(n)]) for x in arrays))


def batch(f, axes=0):
    def mapped(*arrays):
        axis = axes if isinstance(axes, tuple) else (axes,) * 3
        rows = [
            x if a is None else jnp.stack([x, 0.5 * x, x + 0.5])
            for x, a in zip(arrays, axis, strict=True)
        ]
        return jax.vmap(f, axes)(*rows)

    return mapped


TRANSFORMATIONS = {
    "alone": lambda f: f,
    "vmap": batch,
    "vmap of one": lambda f: batch(f, (0, None, None)),
    "shard_map": over_devices,
    "jvp": jvp,
    "vmap of jvp": lambda f: batch(jvp(f)),
    "linearize": lambda f: lambda x, y, z: jax.linearize(f, x, y, z)[1](z, x, y),
    "grad": grad,
    "vmap of grad": lambda f: batch(grad(f)),
    "grad of vmap": lambda f: grad(batch(f)),
    "grad of grad": lambda f: grad(grad(f)),
    "checkpoint": lambda f: grad(jax.checkpoint(f)),
    "grad of jvp": lambda f: grad(lambda *a: jvp(f)(*a)[1]),
}
# JAX differentiates a while_loop in forward mode alone.
FORWARD = ("alone", "vmap", "vmap of one", "shard_map", "jvp", "vmap of jvp")


def has_while(program):
    return any(s[0] not in STEPS and (s[0] == "while" or has_while(s[2])) for s in program)


X = np.linspace(0.1, 1, SIZE).astype(np.float32)
ARRAYS = (X, np.cos(3 * X), np.flip(X) - 0.3)


def check(program, transformation, around, mode):
    """Compares a program of kernels with the one in jax.numpy."""
    transform = TRANSFORMATIONS[transformation]

    def of(k):
        f = transform(lambda *arrays: run(program, k, arrays, 1))
        if around == "region inside":
            f = transform(region_of(k)(lambda *arrays: run(program, k, arrays, 1)))
        if around == "region around":
            f = region_of(k)(f)
        return jax.jit(f)

    want = of(IN_NUMPY)(*ARRAYS)
    function = of(KERNELS[mode])
    for _ in range(2):  # a second call meets its graphs again
        got = function(*ARRAYS)
        jax.tree.map(same, got, want)


def same(a, b):
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    scale = max(1.0, float(np.max(np.abs(b), initial=0)))
    np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 * scale)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    program=programs,
    transformation=st.sampled_from(sorted(TRANSFORMATIONS)),
    around=st.sampled_from(["kernels", "region inside", "region around"]),
    mode=st.sampled_from(sorted(KERNELS)),
    options=st.fixed_dictionaries(
        {},
        optional={
            "max_unrolled_nodes": st.sampled_from([1, 3, 10]),
            "scratch_reuse": st.sampled_from(["order", "never"]),
            "max_batch_nodes": st.sampled_from([1, 2]),
            "max_ops_per_graph": st.integers(1, 12),
            "graph_after": st.integers(0, 1),
            "use_graphs": st.booleans(),
        },
    ),
    seed=st.one_of(st.none(), st.integers(0, 2**32)),
)
def test_random_programs(program, transformation, around, mode, options, seed):
    if has_while(program) and transformation not in FORWARD:
        transformation = "jvp"
    _core.host_set_order_seed(seed)
    try:
        with jge.options(**options):
            check(program, transformation, around, mode)
    finally:
        _core.host_set_order_seed(None)


def on_devices():
    """Run in a process with several CPU devices."""

    @settings(max_examples=EXAMPLES // 4 + 1, deadline=None, database=None)
    @given(program=programs, around=st.sampled_from(["kernels", "region inside"]))
    def shard(program, around):
        check(program, "shard_map", around, "nodes")

    shard()


def test_random_programs_on_several_devices():
    run_on_cpu_devices("import test_api_fuzz; test_api_fuzz.on_devices()", 4)

"""Random regions equal the same functions outside a region, where XLA runs each kernel alone.

``make fuzz`` sets JAX_GRAPHENC_FUZZ_EXAMPLES. Each example compiles two functions, so that a
fifteenth of these run.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

import jax_graphenc as jge
from jax_graphenc import _core

EXAMPLES = int(os.environ.get("JAX_GRAPHENC_FUZZ_EXAMPLES", "300")) // 15 + 1
# A multiple of 16 bytes, and not: parts of the one are aligned, parts of the other are copied.
ROWS, SIZES = 4, (4, 3)

pytestmark = [pytest.mark.usefixtures("cpu"), pytest.mark.slow]

# All numbers are small integers modulo a prime, so that any order of sums gives the same.
SOURCE = r"""
extern "C" __global__ void mix(const float* x, const float* y, float* out, float a, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = fmodf(a * x[i] + y[n - 1 - i], 251);
}
extern "C" __global__ void update(const float* x, float* u, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) u[i] = fmodf(3 * u[i] + x[n - 1 - i] + 1, 251);
}
extern "C" __global__ void bump(float* u, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) u[i] = fmodf(2 * u[i] + 1, 251);
}
extern "C" __global__ void exchange(float* u, float* v, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float t = u[i];
    u[i] = v[i];
    v[i] = fmodf(t + 1, 251);
  }
}
extern "C" __global__ void add_index(const float* x, const int* k, float* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = fmodf(x[i] + *k, 251);
}
extern "C" __global__ void collect(const float* x, float* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&out[i], x[i]);
}
"""


def flipped(x):
    return x.reshape(-1)[::-1].reshape(x.shape)


def kernel(name, reference, **options):
    return jge.cuda_kernel(SOURCE, name, grid=1, block=4, reference=reference, **options)


def like_first(x, *_, **__):
    return x


MIX = kernel("mix", lambda x, y, *, a, n: jnp.fmod(a * x + flipped(y), 251), out_shape=like_first)
UPDATE = kernel(
    "update", lambda x, u, *, n: jnp.fmod(3 * u + flipped(x) + 1, 251), params={"u": "inout"}
)
BUMP = kernel("bump", lambda u, *, n: jnp.fmod(2 * u + 1, 251), params={"u": "inout"})
EXCHANGE = kernel(
    "exchange",
    lambda u, v, *, n: (v, jnp.fmod(u + 1, 251)),
    params={"u": "inout", "v": "inout"},
)
ADD_INDEX = kernel("add_index", lambda x, k, *, n: jnp.fmod(x + k, 251), out_shape=like_first)
COLLECT = kernel("collect", lambda x, *, n: x, out_shape=like_first, zero_init=("out",))


def wave(x):
    """Something only XLA does, in whole numbers."""
    return jnp.where(x > 100, x - 100, x + 7)


# What a step does with a list of equal arrays and a number: new arrays, which take places there.
STEPS = {
    "mix": lambda x, y, z, i: [MIX(x, y, a=2.0, n=x.size)],
    "mix with a constant": lambda x, y, z, i: [MIX(jnp.full_like(x, 5), y, a=2.0, n=x.size)],
    "update": lambda x, y, z, i: [UPDATE(x, y, n=x.size)],
    "bump": lambda x, y, z, i: [BUMP(x, n=x.size)],
    "exchange": lambda x, y, z, i: list(EXCHANGE(x, y, n=x.size)),
    "exchange rows": lambda x, y, z, i: [
        jnp.concatenate([*EXCHANGE(x[:1], y[1:2], n=x[0].size), z[2:]])
    ],
    "add index": lambda x, y, z, i: [ADD_INDEX(x, jnp.asarray(i, jnp.int32), n=x.size)],
    "collect": lambda x, y, z, i: [COLLECT(x, n=x.size)],
    "swap": lambda x, y, z, i: [y, x],
    "rotate": lambda x, y, z, i: [jnp.concatenate([x[1:], x[:1]])],
    "join": lambda x, y, z, i: [jnp.concatenate([BUMP(x[:2], n=x[:2].size), y[2:3], z[3:]])],
    "stack": lambda x, y, z, i: [
        jnp.stack([BUMP(x[0], n=x[0].size), y[1], y[1], MIX(z[3], x[0], a=1.0, n=x[0].size)])
    ],
    "row of the index": lambda x, y, z, i: [
        x.at[1].set(lax.dynamic_index_in_dim(y, i % ROWS, keepdims=False))
    ],
    "xla": lambda x, y, z, i: [wave(x)],
    "zeros": lambda x, y, z, i: [jnp.zeros_like(x)],
    "row's kernel, mapped": lambda x, y, z, i: [jax.vmap(lambda r: BUMP(r, n=r.size))(x)],
    "shared row, mapped": lambda x, y, z, i: [jax.vmap(lambda r: UPDATE(r, y[2], n=r.size))(x)],
}
places = st.integers(0, 2)
step = st.tuples(st.sampled_from(sorted(STEPS)), places, places, places, places)
LOOPS = ("fori", "dynamic", "scan", "reverse", "cond", "map", "region")


def nested(inner):
    return st.tuples(st.sampled_from(LOOPS), st.integers(0, 7), st.lists(inner, max_size=4))


programs = st.lists(st.recursive(step, nested, max_leaves=8), min_size=1, max_size=6)


def run(program, arrays, i):
    """Does a list of steps with three arrays; ``i`` is the counter of the innermost loop."""
    arrays = list(arrays)
    for kind, *rest in program:
        if kind in STEPS:
            x, y, z, to = rest
            for k, made in enumerate(STEPS[kind](arrays[x], arrays[y], arrays[z], i)):
                arrays[(to + k) % 3] = made
        else:
            arrays = list(run_nested(kind, *rest, arrays, i))
    return tuple(arrays)


def run_nested(kind, count, body, arrays, i):
    if kind == "fori":
        return lax.fori_loop(0, count, lambda k, c: run(body, c, k), tuple(arrays))
    if kind == "dynamic":  # the number of iterations is data, as far as JAX knows
        n = jnp.minimum(arrays[0][0, 0].astype(jnp.int32), 0) + count
        return lax.fori_loop(0, n, lambda k, c: run(body, c, k), tuple(arrays))
    if kind == "cond":
        return lax.cond(
            arrays[0][0, 0] > count * 20,
            lambda c: run(body, c, i),
            lambda c: (c[1], c[0], BUMP(c[1], n=c[1].size)),
            tuple(arrays),
        )
    if kind == "region":
        return jge.graph(lambda *c: run(body, c, count))(*arrays)
    if kind == "map":
        rows = lax.map(lambda r: run(body, [r] * 3, 2)[count % 3], jnp.stack([*arrays, arrays[0]]))
        return rows[3], rows[1], rows[2]
    # A scan: one array is carried, the rows of the second are read, and rows are stacked.
    length = min(count, ROWS)

    def advance(c, row):
        c = run(body, c, count)
        u = UPDATE(row, c[0][0], n=row.size)
        return c, (row, c[1][0], u)

    c, rows = lax.scan(advance, tuple(arrays), arrays[1][:length], reverse=kind == "reverse")
    short = [jnp.concatenate([r, arrays[2][length:]]) for r in rows]
    return c[0], short[count % 3], BUMP(c[2], n=c[2].size)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    program=programs,
    size=st.sampled_from(SIZES),
    bound=st.sampled_from([1, 3, 10, 4096]),
    reuse=st.sampled_from(["path", "order", "never"]),
    mapped=st.booleans(),
    ops=st.integers(1, 12),
    after=st.integers(0, 1),
    seed=st.one_of(st.none(), st.integers(0, 2**32)),
)
def test_random_regions_equal_what_they_are_made_of(
    program, size, bound, reuse, mapped, ops, after, seed
):
    shape = (2, 3, ROWS, size) if mapped else (3, ROWS, size)
    start = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) * 7 % 251

    def plain(*arrays):
        return run(program, arrays, 1)

    def transformed(f):
        return jax.vmap(f, (0, 0, None)) if mapped else f

    arrays = [start[:, 0], start[:, 1], start[1, 2]] if mapped else list(start)
    want = arrays
    _core.host_set_order_seed(seed)
    try:
        with jge.options(
            max_unrolled_nodes=bound,
            scratch_reuse=reuse,
            max_ops_per_graph=ops,
            graph_after=after,
        ):
            region = jax.jit(transformed(jge.graph(plain)))
            lone = jax.jit(transformed(plain))
            for _ in range(3):  # so that graphs are met again, and patched
                got, want = region(*arrays), lone(*arrays)
                for a, b in zip(got, want, strict=True):
                    np.testing.assert_array_equal(a, b)
                if not mapped:
                    arrays = got
    finally:
        _core.host_set_order_seed(None)

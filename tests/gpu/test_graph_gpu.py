"""Regions on a GPU: as executable graphs, node by node, and in XLA's command buffers."""

import collections
import os
import statistics
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge

pytestmark = pytest.mark.usefixtures("gpu")

SOURCE = r"""
extern "C" __global__ void axpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
extern "C" __global__ void bump(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}
extern "C" __global__ void fold(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&out[i % 8], x[i]);
}
"""
N = 1 << 12


def kernel(name, **options):
    return jge.cuda_kernel(
        SOURCE, name, grid=lambda x, *_, **__: jge.cdiv(x.size, 256), block=256, **options
    )


axpy_raw = kernel(
    "axpy",
    out_shape=lambda x, *_, **__: x,
    reference=lambda x, y, *, a, n: a * x + y,
    vmap="sequential",
)
bump_raw = kernel("bump", params={"x": "inout"}, vmap="sequential")
fold_raw = kernel("fold", out_shape=jax.ShapeDtypeStruct((8,), jnp.float32), zero_init=("out",))


def axpy(x, y, a=0.5):
    return axpy_raw(x, y, a=a, n=x.size)


def bump(x):
    return bump_raw(x, n=x.size)


def fold(x):
    return fold_raw(x, n=x.size)


class Kernels:
    axpy, bump, fold = map(staticmethod, (axpy, bump, fold))


class Numpy:
    """The same in jax.numpy."""

    axpy = staticmethod(lambda x, y, a=0.5: a * x + y)
    bump = staticmethod(lambda x: x + 1)
    fold = staticmethod(lambda x: x.reshape(-1, 8).sum(0))


def chain(k, x, y):
    for _ in range(50):
        x = k.axpy(x, y)
    return x


def independent(k, x, y):
    return [k.axpy(k.axpy(x, y, i / 64), y) for i in range(64)]


def counted_loop(k, x, y):
    def body(u, row):
        u = k.axpy(u, row)
        return u, u[:64]

    return jax.lax.scan(body, x, jnp.stack([y, 2 * y, 3 * y, x]))


def atomics(k, x, y):
    return k.fold(x), k.fold(k.axpy(x, y)), k.fold(x)


def in_place(k, x, y):
    a, b = k.bump(x), k.bump(k.bump(k.axpy(x, y)))
    return a, b, k.axpy(x, a)


def beside_xla(k, x, y):
    z = jnp.cumsum(chain(k, x, y)) / N + 1
    return jnp.sum(chain(k, z, jnp.sin(x))) + z[::-1] @ y, z


FUNCTIONS = [chain, independent, counted_loop, atomics, in_place, beside_xla]
MODES = {
    "graphs": {},
    "graphs at once": {"graph_after": 0},
    "no graphs": {"use_graphs": False},
    "small graphs": {"max_ops_per_graph": 7},
    "debug": {"debug": True},
}


def inputs(k):
    """Other values each time, in memory of their own."""
    x = np.arange(N, dtype=np.float32) % 97 + k
    return jnp.asarray(x), jnp.asarray(x[::-1] / 50)


def check(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3), got, want)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_regions_equal_jax_numpy(function, mode):
    want = jax.jit(lambda x, y: function(Numpy, x, y))
    with jge.options(**MODES[mode]):
        region = jge.graph(lambda x, y: function(Kernels, x, y))
        jitted = jax.jit(region)
        jge.reset_stats()
        kept = []  # so that results move
        for k in range(6):
            kept.append((jitted(*inputs(k)), want(*inputs(k))))
        check(region(*inputs(7)), want(*inputs(7)))
        for got, expected in kept:
            check(got, expected)
        stats = jge.stats()
    as_graphs = mode.endswith("graphs at once") or mode in ("graphs", "small graphs")
    assert (stats["graph_launches"] > 0) == as_graphs
    assert not any(count for name, count in stats.items() if name.startswith("fallbacks"))
    if mode == "debug":
        assert stats["captured_nodes"] == 0


@pytest.mark.parametrize("kept_at_once", [64, None])
def test_only_what_moves_is_patched(kept_at_once):
    @jax.jit
    @jge.graph
    def f(x, y):
        for _ in range(200):
            x = axpy(x, y)
        return x

    n = 4096
    y = jnp.ones(n)
    # So many results stay alive that their addresses do not come back soon, or ever.
    kept = collections.deque([jnp.arange(float(n))], maxlen=kept_at_once)
    patched = []
    for call in range(200):
        # At first, further graphs are made, in the hope that addresses come back.
        if call == 150:
            jge.reset_stats()
        before = jge.stats()["nodes_patched"]
        kept.append(f(kept[-1] + 1, y))
        patched.append(jge.stats()["nodes_patched"] - before)
    jax.block_until_ready(list(kept))
    stats = jge.stats()
    assert stats["nodes"] == 200 * 50
    assert stats["direct_launches"] == stats["captured_nodes"] == 0
    assert stats["instantiations"] == 0
    # The first reads what moves, and the last writes it; a cut may add a few.
    assert statistics.median(patched[150:]) <= 16
    check(kept[-1], jnp.full(n, 2.0))


def test_batches_and_derivatives():
    xs, ys = (jnp.stack(pair) for pair in zip(inputs(1), inputs(2), inputs(3), strict=True))

    def loss(k):
        def of_axpy(x, y):
            for a in (0.5, 0.25, 2.0):
                x = k.axpy(x, y, a)
            return x

        return lambda x, y, wrap: jnp.sum(jnp.square(wrap(of_axpy)(x, y)))

    region = jge.graph
    for transform in (
        lambda f: jax.vmap(f),
        lambda f: jax.grad(lambda x, y: jnp.sum(jax.vmap(f)(x, y)), (0, 1)),
        lambda f: jax.vmap(jax.grad(f, (0, 1))),
    ):
        ours = jax.jit(transform(lambda x, y: loss(Kernels)(x, y, region)))
        want = jax.jit(transform(lambda x, y: loss(Numpy)(x, y, lambda f: f)))
        for _ in range(3):
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), ours(xs, ys), want(xs, ys)
            )


def test_regions_in_xlas_command_buffers():
    def f(k, wrap, x, y):
        for i in range(6):
            x = wrap(lambda u, i=i: k.bump(k.axpy(k.axpy(u, y), y, 0.1 * i)))(x)
            x = k.axpy(x, y, 0.5)
        return x, x + y

    ours = jax.jit(lambda x, y: f(Kernels, jge.graph, x, y))
    want = jax.jit(lambda x, y: f(Numpy, lambda g: g, x, y))
    jge.reset_stats()
    kept = [(ours(*inputs(k)), want(*inputs(k))) for k in range(40)]
    for got, expected in kept:
        check(got, expected)
    assert jge.stats()["captured_nodes"] >= 24


def untaken_branch():
    """Run in a process whose XLA records both branches, of which one has not run."""
    late_raw = jge.cuda_kernel(
        SOURCE.replace("axpy", "late"),
        "late",
        out_shape=lambda x, *_, **__: x,
        grid=lambda x, *_, **__: jge.cdiv(x.size, 256),
        block=256,
    )

    def late(x, y):
        return late_raw(x, y, a=0.5, n=N)

    def six(k, x, y):
        for _ in range(6):
            x = k(x, y)
        return x

    loaded = []
    for wrap in (lambda f: f, jge.graph):
        f = jax.jit(
            lambda p, x, y, wrap=wrap: jax.lax.cond(
                p,
                lambda: six(axpy, x, y),
                lambda: wrap(lambda x: six(late, x, y))(six(axpy, x, y)),
            )
        )
        for k, p in enumerate([True] * 4 + [False] * 4 + [True, False]):
            x, y = inputs(k)
            want = six(Numpy.axpy, x, y)
            check(f(p, x, y), want if p else six(Numpy.axpy, want, y))
            if k == 3:
                loaded.append(jge.stats()["images_loaded"])
    print(loaded[0], jge.stats()["images_loaded"], jge.stats()["captured_nodes"])


def test_the_first_load_is_in_the_middle_of_xlas_capture():
    done = subprocess.run(
        [sys.executable, "-c", "import test_graph_gpu; test_graph_gpu.untaken_branch()"],
        env={
            **os.environ,
            "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")
            + " --xla_gpu_enable_command_buffer=+CONDITIONAL",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    before, after, captured = map(int, done.stdout.split())
    assert after == 2
    if captured == 0 or before < 2:
        pytest.skip("this XLA records no branch before it has run")
    assert captured >= 6


def test_a_checkpoint_in_a_region_saves_the_memory_that_it_saves_outside():
    weigh = jge.cuda_kernel(
        r"""extern "C" __global__ void weigh(const float* x, const float* y, float* out, int n) {
              int i = blockIdx.x * blockDim.x + threadIdx.x;
              if (i < n) out[i] = 2 * x[i] + y[i];
            }""",
        "weigh",
        out_shape=lambda x, y: x,
        grid=lambda n: jge.cdiv(n, 256),
        block=256,
        values={"n": lambda x: x.size},
        reference=lambda x, y, **_: 2 * x + y,
    )

    def stretch(x):
        for _ in range(8):
            x = weigh(jnp.sin(x), jnp.cos(x * x))
        return x

    def temporary_bytes(step, around):
        def f(x):
            for _ in range(4):
                x = step(x)
            return jnp.sum(x)

        compiled = jax.jit(jax.grad(around(f))).lower(jnp.ones(1 << 20)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    saved = temporary_bytes(jax.checkpoint(stretch), lambda f: f)
    assert saved < 0.7 * temporary_bytes(stretch, lambda f: f)
    assert temporary_bytes(jax.checkpoint(stretch), jge.graph) <= 1.05 * saved

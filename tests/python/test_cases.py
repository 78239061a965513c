"""Situations that broke programs like this one, each for lone kernels and for regions."""

import collections
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from other_process import run_on_cpu_devices

import jax_graphenc as jge
from jax_graphenc.calls.call import KernelCall
from jax_graphenc.programs.program import Program

SOURCE = r"""
extern "C" __global__ void axpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
extern "C" __global__ void bump(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}
extern "C" __global__ void histogram(const int* x, float* bins, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[x[i]], 1.0f);
}
"""


def kernel(name, source=SOURCE, **options):
    return jge.cuda_kernel(
        source, name, grid=lambda x, *_, **__: jge.cdiv(x.size, 64), block=64, **options
    )


axpy_raw = kernel("axpy", out_shape=lambda x, *_, **__: x)
bump_raw = kernel("bump", params={"x": "inout"})
counts = kernel("histogram", out_shape=jax.ShapeDtypeStruct((8,), jnp.float32), zero_init=("bins",))

X = jnp.arange(300, dtype=jnp.float32)
ONE = jnp.ones(300, jnp.float32)


def axpy(x, y, a=2.0):
    return axpy_raw(x, y, a=a, n=x.size)


def bump(x):
    return bump_raw(x, n=x.size)


def steps(x, y, count):
    for i in range(count):
        x = axpy(x, y, a=1.0 + i % 3 * 0.001)
    return x


def steps_in_numpy(x, y, count):
    for i in range(count):
        x = np.float32(1.0 + i % 3 * 0.001) * x + y
    return x


def each(function):
    """A test of both: kernels that are custom calls of their own, and regions."""
    return pytest.mark.parametrize("wrap", [lambda f: f, jge.graph], ids=["lone", "region"])(
        function
    )


def programs_in(compiled):
    return compiled.as_text().count('custom_call_target="jax_graphenc.')


@each
def test_kernels_of_one_name_run_their_own_code(wrap):
    """7. Of different sources, and of different dtypes, in one function."""
    source = """template <typename T> __global__ void f(const T* x, T* out) {
      out[threadIdx.x] = x[threadIdx.x] PART;
    }"""

    def make(part):
        return jge.cuda_kernel(
            source.replace("PART", part), "f<{x}>", out_shape=lambda x: x, grid=1, block=8
        )

    third, double = make("/ 3"), make("* 2")
    f = jax.jit(wrap(lambda x, i: (third(x), double(x), third(i), double(i), third(double(i)))))
    x, i = jnp.arange(8.0), jnp.arange(8, dtype=jnp.int32)
    for _ in range(3):
        for got, want in zip(f(x, i), (x / 3, 2 * x, i // 3, 2 * i, 2 * i // 3), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-6)


def holds(kind):
    """A kernel that adds a number that only such a launch gives: itself, its input and the sum."""
    launch = {"out_shape": lambda x: x, "grid": 8, "block": 32}
    if kind == "64 KB":  # above 48 a kernel must have asked for
        text = """extern __shared__ int s[];
        for (int i = threadIdx.x; i < 16384; i += blockDim.x) s[16383 - i] = i;
        __syncthreads();
        out[i] = x[i] + s[0];"""
        kernel = jge.cuda_kernel(BODY % text, "f", **launch, shared_mem=64 * 1024)
        return kernel, 16383
    if kind == "cluster":
        text = "out[i] = x[i] + cooperative_groups::this_cluster().num_blocks();"
        return jge.cuda_kernel(BODY % text, "f", **launch, cluster=4), 4
    text = "out[i] = x[i] + 1; cooperative_groups::this_grid().sync();"
    text += " if (blockIdx.x > 0) return; for (int k = i; k < 256; k += 32) out[k] += 1;"
    return jge.cuda_kernel(BODY % text, "f", **launch, cooperative=True), 2


BODY = """#include <cooperative_groups.h>
extern "C" __global__ void f(const int* x, int* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  %s
}"""


@pytest.mark.parametrize("nodes", [2, 120])
@pytest.mark.parametrize("kind", ["64 KB", "cluster", "cooperative"])
def test_what_a_launch_asked_for_survives_in_a_graph(kind, nodes):
    """10. Nodes of a region; XLA takes none of 120 into graphs of its own."""
    info = jge.device_info()
    there = {"64 KB": True, "cluster": info.max_cluster > 1, "cooperative": info.driver == "cuda"}
    if not there[kind]:
        pytest.skip(f"{info.name} has no {kind} launches")
    kernel, added = holds(kind)

    @jge.graph
    def chain(x):
        for _ in range(nodes):
            x = kernel(x)
        return x

    f, x = jax.jit(chain), jnp.arange(256, dtype=jnp.int32)
    with jge.options(graph_after=0):
        jge.reset_stats()
        np.testing.assert_array_equal(f(x), x + nodes * added)
        stats = jge.stats()
        assert stats["graph_launches"] >= 1
        assert stats["direct_launches"] == 0
        for k in range(3):  # the same graph, and nodes that are told other addresses
            np.testing.assert_array_equal(f(x + k), x + k + nodes * added)
    assert not any(count for name, count in jge.stats().items() if name.startswith("fallbacks"))


@each
def test_more_shared_memory_on_a_later_call(wrap):
    """8. Little, 64 KB and little again, of one function of one image."""
    reverse = jge.cuda_kernel(
        r"""extern "C" __global__ void reverse(const float* x, float* out, int n) {
          extern __shared__ float s[];
          for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
          __syncthreads();
          for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = s[n - 1 - i];
        }""",
        "reverse",
        out_shape=lambda x, **_: x,
        grid=1,
        block=64,
        shared_mem=lambda x, **_: 4 * x.size,
        values={"n": lambda x, **_: x.size},
    )
    f = jax.jit(wrap(lambda x: reverse(reverse(reverse(x)))))
    for n in (100, 16384, 101, 16384):
        np.testing.assert_array_equal(f(jnp.arange(float(n))), np.arange(float(n))[::-1])


@pytest.mark.usefixtures("cpu")
@each
def test_a_block_that_is_too_large_is_told_of_its_kernel(wrap):
    """13. Where the call is, not where all is committed; what comes later is well."""
    launches = {"params": {"x": "inout"}, "grid": 1, "block": 2048}
    large = jge.cuda_kernel(SOURCE.replace("bump", "large"), "large", **launches)
    with pytest.raises(ValueError, match=r"kernel 'large': block\.x is 2048 .* limit is 1024"):
        jax.jit(wrap(lambda x: bump(large(bump(x), n=300))))(ONE)
    np.testing.assert_array_equal(jax.jit(wrap(lambda x: bump(bump(x))))(ONE), ONE + 2)

    data = np.zeros(300, np.float32)
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        encoder.append(bump_raw, data, n=300)
        with pytest.raises(ValueError, match="kernel 'large': block"):
            encoder.append(large, data, n=300)
        encoder.append(bump_raw, data, n=300)
    np.testing.assert_array_equal(data, np.full(300, 2))


@each
@pytest.mark.parametrize(
    "settings",
    [{}, {"use_graphs": False}, {"graph_after": 0}, {"debug": True}],
    ids=["default", "no graphs", "graphs at once", "debug"],
)
def test_what_xla_reads_behind_a_kernel_is_never_stale(wrap, settings):
    """14. z = f(x) + 1, where the addition is XLA's."""
    with jge.options(**settings):
        f = jax.jit(lambda x: wrap(lambda x: steps(x, ONE, 3))(x) + 1)
        for k in range(6):
            want = steps_in_numpy(np.asarray(X + k), 1.0, 3) + 1
            np.testing.assert_allclose(f(X + k), want, rtol=1e-6)


@each
def test_addresses_that_always_move_cost_no_graph_and_no_copy(wrap):
    """15. Results are kept alive, and inputs copied on each step."""
    compiled = jax.jit(wrap(lambda x, y: steps(x, y, 200))).lower(X, ONE).compile()
    assert " copy(" not in compiled.as_text()
    kept, want = [X], [np.asarray(X)]
    with jge.options(graph_after=0):
        # At first, further graphs are made, in the hope that addresses come back.
        for step in range(98):
            if step == 90:
                jge.reset_stats()
            kept.append(compiled(jnp.array(kept[-1]) + 0, ONE))
            want.append(steps_in_numpy(want[-1], 1.0, 200))
        np.testing.assert_allclose(kept, want, rtol=1e-4)
    stats = jge.stats()
    if wrap is jge.graph:  # XLA may replay lone kernels without asking
        assert stats["nodes"] == 8 * 200
    for what in ("instantiations", "exec_evictions", "images_loaded", "programs"):
        assert stats[what] == 0, what
    assert not any(count for name, count in stats.items() if name.startswith("fallbacks"))


def two_devices():
    """Run in a process with two CPU devices."""
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
    split = PartitionSpec("d")
    x = jax.device_put(jnp.arange(600.0), NamedSharding(mesh, split))
    for wrap, images in ((lambda f: f, 4), (jge.graph, 0)):  # an image a kernel and device, once
        jge.reset_stats()
        f = jax.jit(
            jax.shard_map(
                wrap(lambda x: steps(bump(x), x, 5)), mesh=mesh, in_specs=split, out_specs=split
            )
        )
        for k in range(4):
            want = np.asarray(x) + k
            got = f(x + k)
            assert len(got.sharding.device_set) == 2
            np.testing.assert_allclose(got, steps_in_numpy(want + 1, want, 5), rtol=1e-6)
        assert jge.stats()["images_loaded"] == images
        # One function on one device after the other.
        g = jax.jit(wrap(lambda x: steps(bump(x), ONE, 5)))
        for _ in range(3):
            for device in jax.devices():
                got = g(jax.device_put(X, device))
                assert got.devices() == {device}
                np.testing.assert_allclose(got, steps_in_numpy(X + 1, 1.0, 5), rtol=1e-6)


def test_one_function_on_two_devices():
    """16. One jit sharded over two devices, run more than once."""
    run_on_cpu_devices("import test_cases; test_cases.two_devices()", 2)


@each
def test_a_while_loop_of_matmuls_and_an_in_place_kernel(wrap):
    """17. The number of steps depends on the data."""
    swap = jnp.eye(64)[::-1]

    def body(state):
        i, u = state
        return i + 1, bump(bump(u @ swap) @ swap)

    def f(u):
        return jax.lax.while_loop(lambda s: s[1][0, 0] < 20, body, (0, u))

    u = jnp.arange(64.0 * 64).reshape(64, 64) % 256  # exact in TF32
    kept = np.array(u)
    compiled = jax.jit(wrap(f)).lower(u).compile()
    assert programs_in(compiled) == 2
    for _ in range(3):
        count, out = compiled(u)
        assert count == 10
        np.testing.assert_array_equal(out, u + 20)
    np.testing.assert_array_equal(u, kept)


@pytest.mark.usefixtures("cpu")
@each
def test_the_first_load_is_in_the_middle_of_a_capture(wrap, request):
    """18. The thread captures a stream, which forbids it to load code."""
    name = f"fresh_{request.node.callspec.id}"  # once loaded, an image stays
    fresh = kernel(name, SOURCE.replace("axpy", name), out_shape=lambda x, *_, **__: x)
    f = jax.jit(wrap(lambda x: fresh(fresh(x, x, a=1.0, n=300), x, a=1.0, n=300)))
    compiled = f.lower(X).compile()
    data = np.zeros(300, np.float32)
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        encoder.append(bump_raw, data, n=300)
        jge.reset_stats()
        with encoder.capture(writes=[data]):
            np.testing.assert_array_equal(compiled(X), 3 * X)
            assert jge.stats()["images_loaded"] == 1
        encoder.append(bump_raw, data, n=300)
        encoder.synchronize()
    np.testing.assert_array_equal(data, np.full(300, 2))


def alive():
    """How many objects there are that hold kernels, by type."""
    gc.collect()
    kinds = (KernelCall, Program, core.Jaxpr, core.ClosedJaxpr)
    return collections.Counter(type(o).__name__ for o in gc.get_objects() if isinstance(o, kinds))


@each
def test_retraces_of_equal_functions_leave_everything_flat(wrap):
    """19. Forty functions, each with a closure over a constant of its own."""

    def once(k):
        offset = ONE * k
        f = jax.jit(wrap(lambda x: steps(x, offset, 5)))
        np.testing.assert_allclose(f(X), steps_in_numpy(np.asarray(X), k, 5), rtol=1e-6)
        f(X).block_until_ready()

    def several(first):
        for k in range(first, first + 20):
            once(float(k))
        jax.clear_caches()
        return alive()

    before = several(0)
    jge.reset_stats()
    assert several(20) <= before  # what other tests left may go
    stats = jge.stats()
    if wrap is jge.graph:
        assert stats["nodes"] == 200
    for what in ("compiled", "disk_hits", "images_loaded", "exec_evictions", "encoders"):
        assert stats[what] == 0, what
    # The graph of the last that died serves the next one.
    assert stats["instantiations"] <= 1


@each
def test_outputs_that_are_added_to_begin_at_zero(wrap):
    """20. atomicAdd into an output."""
    x = jnp.arange(300, dtype=jnp.int32) % 8
    want = np.bincount(np.asarray(x), minlength=8)
    f = jax.jit(wrap(lambda x: (counts(x, n=300), counts(x[:256], n=256), counts(x, n=300))))
    for _ in range(4):
        whole, part, again = f(x)
        np.testing.assert_array_equal(whole, want)
        np.testing.assert_array_equal(part, np.full(8, 32))
        np.testing.assert_array_equal(again, want)
        np.testing.assert_array_equal(counts(x, n=300), want)


@each
def test_one_kernel_wrapped_with_and_without_aliasing(wrap):
    """21. Each keeps its own roles."""
    source = 'extern "C" __global__ void set(float* u, float v) { u[threadIdx.x] = v; }'
    out = jax.ShapeDtypeStruct((8,), jnp.float32)
    plain = jge.cuda_kernel(source, "set", out_shape=out, grid=1, block=4)
    aliased = jge.cuda_kernel(source, "set", params={"u": "inout"}, grid=1, block=4)

    def f(u):
        a = plain(v=1.0)[:4]
        b = aliased(u, v=2.0)
        return a, b, aliased(u, v=3.0), aliased(b, v=4.0)

    f = jax.jit(wrap(f))
    for _ in range(3):
        a, *rest = f(jnp.full(8, 9.0))
        np.testing.assert_array_equal(a, np.full(4, 1))
        for got, value in zip(rest, (2, 3, 4), strict=True):
            np.testing.assert_array_equal(got, [value] * 4 + [9] * 4)


@each
@pytest.mark.parametrize("reader", ["xla", "kernel"])
def test_what_is_updated_in_place_stays_as_it_was_for_others(wrap, reader):
    """26. An aliased input that is still read, and that the caller keeps."""

    def f(x):
        a, b = bump(x), bump(x)
        read = 2 * x if reader == "xla" else axpy(x, jnp.zeros_like(x))
        return a, bump(b), read

    f = jax.jit(wrap(f))
    u = jnp.array(X)
    for _ in range(3):
        a, b, read = f(u)
        np.testing.assert_array_equal(a, X + 1)
        np.testing.assert_array_equal(b, X + 2)
        np.testing.assert_array_equal(read, 2 * X)
        np.testing.assert_array_equal(u, X)


@each
def test_a_new_shape_on_every_call_is_bounded(wrap):
    """29. Without end; what a shape leaves goes with the kernels, and with JAX's caches."""

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

    with jge.options(graph_cache_size=16):
        run(range(1, 101))
        jax.clear_caches()
        before = alive()
        jge.reset_stats()
        run(range(101, 201))
        jax.clear_caches()
        assert alive() == before
        stats = jge.stats()
        assert stats["nodes"] == 600
        assert stats["compiled"] == stats["images_loaded"] == stats["encoders"] == 0
        assert stats["exec_evictions"] == stats["instantiations"]
        # The graphs of programs that are gone serve those that come.
        jge.reset_stats()
        run([500])
        assert jge.stats()["nodes"] == 6
        assert jge.stats()["instantiations"] == 0


def test_what_a_kernel_keeps_of_its_calls_is_bounded():
    """29. Where the kernel stays; 25. a thousand values, too."""
    add = kernel("axpy", out_shape=lambda x, *_, **__: x)
    shape = jax.ShapeDtypeStruct((300,), jnp.float32)
    before = alive()["KernelCall"]
    for n in range(3000):
        assert jax.eval_shape(lambda x, n=n: add(x, x, a=1.0, n=n), shape).shape == (300,)
        if n in (1500, 2999):
            jax.clear_caches()
            assert alive()["KernelCall"] - before <= 1024

"""Two GPUs in one process: each has its own images, graphs and limits; none waits for another."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jax_graphenc as jge

SOURCE = r"""
extern "C" __global__ void scale(const float* x, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i];
}
extern "C" __global__ void bump(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}
"""
SIZE = 1000
SPEC = PartitionSpec("d")


def kernel(name, **options):
    grid = lambda x, **_: jge.cdiv(x.size, 128)  # noqa: E731
    return jge.cuda_kernel(SOURCE, name, grid=grid, block=128, **options)


scale = kernel("scale", out_shape=lambda x, **_: x)
bump = kernel("bump", params={"x": "inout"})


def steps(x, count=20):
    """((x + 1) * 0.5 ...), by pairs of kernels."""
    for _ in range(count):
        x = scale(bump(x, n=x.size), a=0.5, n=x.size)
    return x


def expected(x, count=20):
    x = np.asarray(x)
    for _ in range(count):
        x = np.float32(0.5) * (x + np.float32(1))
    return x


@pytest.fixture(scope="module")
def devices():
    found = jax.devices()[:2]
    if len(found) < 2:
        pytest.skip("one device here")
    return found


@pytest.fixture(scope="module")
def mesh(devices):
    return jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,), devices=devices)


@pytest.fixture
def rows(mesh):
    values = np.random.default_rng(0).random((2, SIZE), np.float32)
    return values, jax.device_put(values, NamedSharding(mesh, SPEC))


def mapped(mesh, function):
    return jax.jit(
        jax.shard_map(lambda x: function(x[0])[None], mesh=mesh, in_specs=SPEC, out_specs=SPEC)
    )


@pytest.mark.parametrize("function", [steps, jge.graph(steps)], ids=["kernels", "region"])
def test_one_jit_over_two_devices_runs_twice(mesh, rows, function):
    values, x = rows
    f = mapped(mesh, function)
    for _ in range(4):
        np.testing.assert_allclose(f(x), expected(values), rtol=1e-6)
        assert {shard.device for shard in f(x).addressable_shards} == set(mesh.devices.flat)


def test_each_device_loads_and_instantiates_for_itself(devices):
    f = jax.jit(jge.graph(lambda x: steps(x * 3, 7)))
    counts = []
    for device in devices:
        x = jax.device_put(jnp.ones(SIZE), device)
        jge.reset_stats()
        with jge.options(graph_after=0):
            for _ in range(3):
                np.testing.assert_allclose(f(x), expected(np.full(SIZE, 3, np.float32), 7))
        stats = jge.stats()
        counts.append((stats["images_loaded"], stats["instantiations"] > 0))
    assert counts == [(1, True)] * 2 or counts == [(0, True)] * 2
    assert jge.graph_limits(devices[0]) == jge.graph_limits(devices[1])


def test_a_region_in_a_sharded_loop(mesh, rows):
    values, x = rows

    def loop(x):
        return jax.lax.scan(lambda c, _: (jge.graph(steps)(c) + c.sum() * 0, None), x, None, 3)[0]

    np.testing.assert_allclose(mapped(mesh, loop)(x), expected(values, 60), rtol=1e-6)


def test_sharded_operands_without_shard_map_are_right(rows):
    values, x = rows
    with jge.options():
        got = jax.jit(jge.graph(lambda x: steps(x, 5)))(x)
    np.testing.assert_allclose(got, expected(values, 5), rtol=1e-6)


def test_donated_rows_are_reused(mesh, rows):
    values, x = rows
    f = jax.jit(mapped(mesh, jge.graph(steps)), donate_argnums=0)
    for k in range(1, 4):
        x = f(x)
        values = expected(values)
        np.testing.assert_allclose(x, values, rtol=1e-6, err_msg=f"call {k}")


def test_two_threads_with_a_device_each(devices):
    f = jax.jit(jge.graph(steps))
    failures = []

    def work(device, seed):
        try:
            x = np.random.default_rng(seed).random(SIZE, np.float32)
            on_device = jax.device_put(x, device)
            for _ in range(500):
                np.testing.assert_allclose(f(on_device), expected(x), rtol=1e-6)
        except Exception as error:
            failures.append(error)

    pairs = zip(devices, (1, 2), strict=True)
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_equal_addresses_on_two_devices_are_two_places(devices):
    """Two allocators may hand out one address; a graph of one must not be taken for the other's."""
    f = jax.jit(jge.graph(steps))
    kept = []
    with jge.options(graph_after=0):
        for k in range(10):
            for device in devices:
                x = jax.device_put(jnp.full(SIZE, float(k)), device)
                kept.append((f(x), expected(np.full(SIZE, k, np.float32))))
    for got, want in kept:
        np.testing.assert_allclose(got, want, rtol=1e-6)

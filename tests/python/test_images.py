"""Images on devices: of kernels of one name, for several devices, loaded during a capture."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from other_process import run_on_cpu_devices
from small_kernels import ONE, SOURCE, X, bump, bump_kernel, each, kernel, steps, steps_in_numpy

import jax_graphenc as jge


@each
def test_kernels_of_one_name_run_their_own_code(wrap):
    """Of different sources, and of different dtypes, in one function."""
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
    """One jit sharded over two devices, run more than once."""
    run_on_cpu_devices("import test_images; test_images.two_devices()", 2)


@pytest.mark.usefixtures("cpu")
@each
def test_the_first_load_is_in_the_middle_of_a_capture(wrap, request):
    """The thread captures a stream, which forbids it to load code."""
    name = f"fresh_{request.node.callspec.id}"  # once loaded, an image stays
    fresh = kernel(name, SOURCE.replace("axpy", name), out_shape=lambda x, *_, **__: x)
    f = jax.jit(wrap(lambda x: fresh(fresh(x, x, a=1.0, n=300), x, a=1.0, n=300)))
    compiled = f.lower(X).compile()
    data = np.zeros(300, np.float32)
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        encoder.append(bump_kernel, data, n=300)
        jge.reset_stats()
        with encoder.capture(writes=[data]):
            np.testing.assert_array_equal(compiled(X), 3 * X)
            assert jge.stats()["images_loaded"] == 1
        encoder.append(bump_kernel, data, n=300)
        encoder.synchronize()
    np.testing.assert_array_equal(data, np.full(300, 2))

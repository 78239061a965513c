"""What a kernel takes of a GPU; the native part on the software driver, whose figures are fixed."""

import jax.numpy as jnp
import pytest

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Source
from jax_graphenc.kernels import occupancy

pytestmark = pytest.mark.usefixtures("cpu")

TEXT = """
extern "C" __global__ void one(float* out) { out[0] = 1; }
template <typename T> __global__ void scale(const T* x, T* out) { out[0] = x[0]; }
"""


@pytest.fixture(scope="module")
def image():
    return compile_source(Source(TEXT, "<one>"), ["one"], "cpu", None).data


def on_host(image, **changes):
    info = {"name": "host", "warp_size": 32, "max_threads_per_multiprocessor": 2048, **changes}
    return occupancy.OnDevice("host", 0, image, "one", info, "one")


def make(name="one"):
    return jge.cuda_kernel(TEXT, name, out_shape=jnp.zeros(1), grid=1, block=1)


def test_attributes_of_the_driver(image):
    found = on_host(image).attributes()
    assert found == occupancy.KernelAttributes(0, 0, 0, 0, max_threads=1024)
    with pytest.raises(ValueError, match="kernel 'two' is not in its image; the image has: one"):
        _core.kernel_attributes("host", 0, image, "two")


def test_occupancy(image):
    device = on_host(image)
    found = device.occupancy((32, 8), 0)
    assert found == occupancy.Occupancy(8, 2048, 2048)
    assert found.fraction == 1
    # What is over 48 KB is opted in to.
    assert device.occupancy(256, 100 * 1024) == occupancy.Occupancy(2, 512, 2048)
    assert device.occupancy(256, 300 * 1024) == occupancy.Occupancy(0, 0, 2048)
    assert device.occupancy(96, 0) == occupancy.Occupancy(21, 2016, 2048)
    with pytest.raises(ValueError, match=r"block=\(1025, 1, 1\) has 1025 threads|block.x is 1025"):
        device.occupancy(1025, 0)
    with pytest.raises(TypeError, match=r"shared_mem=1\.5 is not an integer"):
        device.occupancy(32, 1.5)


def test_the_suggested_block_is_the_largest_of_the_fullest(image):
    device = on_host(image)
    assert device.suggest_block(0) == 1024
    # 228 KB, of which each block takes 1 KB more: 1024 threads fit once, 896 twice.
    assert device.suggest_block(lambda threads: 128 * threads) == 896
    with pytest.raises(ValueError, match="no block fits on host"):
        device.suggest_block(1 << 20)


def test_the_cpu_says_that_it_has_none():
    kernel = make()
    for ask in (kernel.attributes, kernel.suggest_block, lambda: kernel.occupancy(256)):
        with pytest.raises(jge.UnsupportedOnCpuError, match="registers, spills and occupancy are"):
            ask()


def test_a_template_needs_its_inputs(monkeypatch):
    kernel = make("scale<{x}>")
    monkeypatch.setattr(occupancy, "driver_of", lambda _: "cuda")
    with pytest.raises(TypeError, match="depends on the dtypes of its inputs"):
        kernel.attributes()

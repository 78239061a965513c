"""What a launch asks for: shared memory, clusters, cooperation, sizes within the limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_kernels import ONE, SOURCE, bump, bump_kernel, each

import jax_graphenc as jge


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
    """Nodes of a region; XLA takes none of 120 into graphs of its own."""
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
        for k in range(3):  # the same graph, with other addresses
            np.testing.assert_array_equal(f(x + k), x + k + nodes * added)
    assert not any(count for name, count in jge.stats().items() if name.startswith("fallbacks"))


@each
def test_more_shared_memory_on_a_later_call(wrap):
    """Little, 64 KB and little again, of one function of one image."""
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
    """Where the call is, not where all is committed; what comes later is well."""
    launches = {"params": {"x": "inout"}, "grid": 1, "block": 2048}
    large = jge.cuda_kernel(SOURCE.replace("bump", "large"), "large", **launches)
    with pytest.raises(ValueError, match=r"kernel 'large': block\.x is 2048 .* limit is 1024"):
        jax.jit(wrap(lambda x: bump(large(bump(x), n=300))))(ONE)
    np.testing.assert_array_equal(jax.jit(wrap(lambda x: bump(bump(x))))(ONE), ONE + 2)

    data = np.zeros(300, np.float32)
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        encoder.append(bump_kernel, data, n=300)
        with pytest.raises(ValueError, match="kernel 'large': block"):
            encoder.append(large, data, n=300)
        encoder.append(bump_kernel, data, n=300)
    np.testing.assert_array_equal(data, np.full(300, 2))

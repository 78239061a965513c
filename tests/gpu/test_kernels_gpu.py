"""Kernels as a GPU's compilers and driver take them: libraries, variables, launches, figures."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.compiler import nvcc

pytestmark = pytest.mark.usefixtures("gpu")

X = jnp.arange(1024, dtype=jnp.float32)


def shape_of(x, **_):
    return x


def make(text, name="f", **changes):
    definition = {"out_shape": shape_of, "grid": 8, "block": 128}
    return jge.cuda_kernel(text, name, **{**definition, **changes})


def body(text, before=""):
    return (
        f'{before}extern "C" __global__ void f(const float* x, float* out) {{\n'
        f"  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  {text}\n}}\n"
    )


# ---------------------------------------------------------------------- sources

SUM = """#include <cooperative_groups.h>
#include <cuda/std/array>
#include <CUB>
template <typename T> __global__ void sum(const T* x, T* out) {
  using Reduce = cub::BlockReduce<T, 128>;
  __shared__ typename Reduce::TempStorage storage;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cuda::std::array<T, 1> total{Reduce(storage).Sum(x[i])};
  if (cooperative_groups::this_thread_block().thread_rank() == 0) out[blockIdx.x] = total[0];
}
"""


@pytest.mark.parametrize(
    "header",
    [
        "cub/block/block_reduce.cuh",
        pytest.param(
            "cub/cub.cuh", marks=pytest.mark.skipif(nvcc.find() is None, reason="no nvcc here")
        ),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32])
def test_libraries_of_the_device(header, dtype):
    kernel = make(
        SUM.replace("CUB", header),
        "sum<{x}>",
        out_shape=lambda x, **_: jax.ShapeDtypeStruct((8,), x.dtype),
    )
    x = X.astype(dtype)
    np.testing.assert_array_equal(jax.jit(kernel)(x), x.reshape(8, 128).sum(1))


def test_kernels_of_a_module_share_an_image(tmp_path):
    path = tmp_path / "solver.cu"
    path.write_text(
        'extern "C" __global__ void one(const float* x, float* out) {\n'
        "  out[threadIdx.x] = x[threadIdx.x] + 1; }\n"
        'extern "C" __global__ void two(const float* x, float* out) {\n'
        "  out[threadIdx.x] = x[threadIdx.x] + 2; }\n"
    )
    module = jge.cuda_module(path)
    one, two = (module.kernel(n, out_shape=shape_of, grid=1, block=1024) for n in ("one", "two"))
    jge.reset_stats()
    np.testing.assert_array_equal(jax.jit(lambda x: two(one(x)))(X), X + 3)
    assert jge.stats()["images_loaded"] == 1


# ---------------------------------------------------------------------- variables


def test_variables_of_two_values_do_not_disturb_each_other():
    text = body(
        "out[i] = c[i % 4] * x[i] + offset;", "__constant__ float c[4];\n__device__ int offset;\n"
    )
    values = [(np.array([1, 2, 3, 4]), 5), (np.array([0.5, np.pi, -1, 1e-45], np.float32), -7)]
    kernels = [make(text, globals={"c": c, "offset": n}) for c, n in values]
    expected = [
        np.tile(np.asarray(c, np.float32), 256) * np.asarray(X) + np.float32(n) for c, n in values
    ]

    @jax.jit
    def both(x):
        return [kernel(x) for kernel in kernels] * 2

    together = jge.graph(lambda x: tuple(kernel(x) for kernel in kernels))
    for _ in range(4):  # eager, captured, replayed
        for got, wanted in zip(both(X), expected * 2, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        for got, wanted in zip(together(X), expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


# ---------------------------------------------------------------------- launches


def test_shared_memory_to_the_limit_of_the_device():
    limit = jge.device_info().shared_memory_per_block_optin
    text = body(
        "s[threadIdx.x] = x[i]; s[N - 1 - threadIdx.x] = x[i]; __syncthreads();\n"
        "  out[i] = s[threadIdx.x] + s[N - 1 - threadIdx.x];",
        "extern __shared__ float s[];\n",
    )
    for size in (4096, 64 * 1024, limit):
        kernel = make(text, defines={"N": size // 4}, shared_mem=size)
        np.testing.assert_array_equal(jax.jit(kernel)(X), 2 * X)
    with pytest.raises(jge.LaunchLimitError, match=rf"the limit on .* is {limit} \(grid=.*block="):
        make(text, defines={"N": 1}, shared_mem=limit + 4)(X)


def test_clusters_and_cooperative_launches():
    info = jge.device_info()
    text = body(
        "auto grid = cooperative_groups::this_grid();\n"
        "  out[i] = x[i]; grid.sync(); float y = out[1023 - i]; grid.sync(); out[i] = y;",
        "#include <cooperative_groups.h>\n",
    )
    np.testing.assert_array_equal(make(text, cooperative=True)(X), X[::-1])
    with pytest.raises(Exception, match=r"cooperative launch of .* at the same time \(grid"):
        jax.block_until_ready(make(body("out[0] = 1;"), cooperative=True, grid=1 << 20)(X))
    if info.max_cluster == 1:
        return
    text = body(
        "out[i] = cooperative_groups::this_cluster().num_blocks();",
        "#include <cooperative_groups.h>\n",
    )
    np.testing.assert_array_equal(make(text, cluster=4)(X), np.full(1024, 4))


def test_what_a_kernel_itself_cannot_launch_is_shown_whole():
    text = 'extern "C" __global__ void __launch_bounds__(64) f(const float* x, float* out) {}'
    with pytest.raises(
        Exception,
        match=r"128 threads; the limit on .* is 64 \(grid \(8, 1, 1\), block \(128, 1, 1\)",
    ):
        jax.block_until_ready(make(text)(X))


# ---------------------------------------------------------------------- figures


def test_what_a_kernel_takes():
    info = jge.device_info()
    plain = make(body("out[i] = 2 * x[i];"))
    found = plain.attributes()
    assert 0 < found.registers < 64
    assert found.local_bytes == found.shared_bytes == 0
    assert found.max_threads == info.max_threads_per_block
    text = body(
        # Written at places that no compiler knows, so that it cannot be kept in registers.
        "__shared__ float s[256]; float a[64] = {};\n"
        "  for (int j = 0; j < 64; ++j) a[j * i % 64] += x[j + i % 64];\n"
        "  s[threadIdx.x] = a[i % 64]; __syncthreads(); out[i] = s[127 - threadIdx.x];"
    )
    heavy = make(text).attributes()
    assert heavy.local_bytes >= 256
    assert heavy.shared_bytes == 1024
    bounded = make(
        'extern "C" __global__ void __launch_bounds__(64) f(const float* x, float* o) {}'
    )
    assert bounded.attributes().max_threads == 64
    assert bounded.suggest_block() == 64


def test_how_full_a_multiprocessor_is():
    info = jge.device_info()
    kernel = make(
        "template <typename T> __global__ void f(const T* x, T* y) { *y = *x; }", "f<{x}>"
    )
    full = kernel.occupancy(256, X)
    assert full.max_threads == info.max_threads_per_multiprocessor
    assert full.fraction == 1
    assert kernel.occupancy((32, 8), jnp.float32) == full
    shared = kernel.occupancy(256, X, shared_mem=info.shared_memory_per_block_optin)
    assert (shared.blocks, shared.threads) == (1, 256)
    assert kernel.occupancy(256, X, shared_mem=1 << 20).blocks == 0
    assert kernel.occupancy(kernel.suggest_block(X), X).fraction == 1
    with pytest.raises(TypeError, match="depends on the dtypes of its inputs"):
        kernel.occupancy(256)


# ---------------------------------------------------------------------- tuning


def test_the_fastest_launch_is_found(tmp_path):
    text = body(
        "float y = x[i]; for (int j = 0; j < WORK; ++j) y = y * 1.0001f + 1e-9f;\n"
        "  out[i] = 2 * x[i] + (y == 12345.678f);"
    )
    kernel = make(
        text,
        grid=lambda x, *, block, **_: jge.cdiv(x.size, block[0]),
        defines={"WORK": 100_000},
    )
    configs = [
        {"shared_mem": 1 << 20},
        {"block": 256},
        {"block": 64, "defines": {"WORK": 1}},
    ]
    with jge.options(cache_dir=tmp_path / "cache"):
        tuned = jge.autotune(kernel, configs)
        np.testing.assert_array_equal(tuned(X), 2 * X)
        assert tuned.config(X) == configs[2]
        assert tuned.timings[0][1] is None
        assert tuned.timings[1][1] > tuned.timings[2][1]
        again = jge.autotune(kernel, configs)
        np.testing.assert_array_equal(jax.jit(lambda x: again(x))(X), 2 * X)
        assert again.config(X) == configs[2]
        assert again.timings == ()
        assert os.listdir(tmp_path / "cache")

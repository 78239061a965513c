"""What only a GPU can show: command buffers, faults, the launch attributes of its architecture."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Source

pytestmark = pytest.mark.usefixtures("gpu")

ADD = (
    'extern "C" __global__ void add(const float* x, float* out, float a) {'
    " int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = x[i] + a; }"
)


def make_add(**changes):
    arguments = {"out_shape": lambda x, **_: x, "grid": 4, "block": 64}
    return jge.cuda_kernel(ADD, "add", **{**arguments, **changes})


def test_device_info_describes_the_gpu(gpu):
    info = jge.device_info()
    assert info.driver == "cuda"
    assert info.name == gpu.device_kind
    assert info.compute_capability == tuple(map(int, gpu.compute_capability.split(".")))
    assert info.memory_free <= info.memory_total
    assert info.compiler_version is not None


def test_xla_captures_long_runs_and_replays_them():
    add = make_add()

    @jax.jit
    def chain(x):
        for i in range(8):
            x = add(x, a=float(i))
        return x

    x = jnp.zeros(256)
    jge.reset_stats()
    for _ in range(5):
        out = chain(x)
        np.testing.assert_array_equal(out, np.full(256, 28))
    stats = jge.stats()
    assert stats["captured_nodes"] >= 8
    called = stats["direct_launches"] + stats["captured_nodes"]
    assert called < 5 * 8  # replays do not call us


def test_captured_kernels_see_inputs_that_move():
    add = make_add()

    @jax.jit
    def chain(x):
        y = x
        for _ in range(6):
            y = add(y, a=1.0)
        return y, x + y  # XLA's own addition, behind ours

    kept = []
    for i in range(40):
        x = jnp.full(256, float(i)) + 0
        y, z = chain(x)
        kept.append((x, y, z))
    for i, (_, y, z) in enumerate(kept):
        np.testing.assert_array_equal(y, np.full(256, i + 6))
        np.testing.assert_array_equal(z, np.full(256, 2 * i + 6))


def test_a_matmul_loop_with_an_in_place_kernel():
    add = jge.cuda_kernel(
        'extern "C" __global__ void add_one(float* u) { u[blockIdx.x * 64 + threadIdx.x] += 1; }',
        "add_one",
        params={"u": "inout"},
        grid=64,
        block=64,
    )

    def body(state):
        i, u = state
        return i + 1, add(u @ jnp.eye(64))

    f = jax.jit(lambda u: jax.lax.while_loop(lambda s: s[0] < 10, body, (0, u))[1])
    u = jnp.zeros((64, 64))
    for _ in range(3):
        np.testing.assert_array_equal(f(u), np.full((64, 64), 10))
    np.testing.assert_array_equal(u, np.zeros((64, 64)))


def test_debug_keeps_out_of_command_buffers():
    with jge.options(debug=True):
        add = make_add()

        @jax.jit
        def chain(x):
            for _ in range(8):
                x = add(x, a=1.0)
            return x

        jge.reset_stats()
        for _ in range(3):
            np.testing.assert_array_equal(chain(jnp.zeros(256)), np.full(256, 8))
        assert jge.stats()["captured_nodes"] == 0
        assert jge.stats()["direct_launches"] == 24


@pytest.mark.parametrize("runs", [1, 8])
def test_dynamic_shared_memory_survives_capture(runs):
    reverse = jge.cuda_kernel(
        r"""extern "C" __global__ void reverse(const float* x, float* out) {
              extern __shared__ float s[];
              for (int i = threadIdx.x; i < 16384; i += blockDim.x) s[i] = x[i];
              __syncthreads();
              for (int i = threadIdx.x; i < 16384; i += blockDim.x) out[i] = s[16383 - i];
            }""",
        "reverse",
        out_shape=lambda x: x,
        grid=1,
        block=1024,
        shared_mem=16384 * 4,
    )

    @jax.jit
    def f(x):
        for _ in range(runs):
            x = reverse(x)
        return x

    x = jnp.arange(16384.0)
    for _ in range(3):
        np.testing.assert_array_equal(f(x), x[::-1] if runs % 2 else x)


def needs(capability):
    if jge.device_info().compute_capability < capability:
        pytest.skip(f"needs compute capability {capability}")


@pytest.mark.parametrize("runs", [1, 8])
def test_clusters_survive_capture(runs):
    needs((9, 0))
    ranks = jge.cuda_kernel(
        r"""extern "C" __global__ void ranks(const int* x, int* out) {
              unsigned int rank, size;
              asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
              asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
              out[blockIdx.x] = 100 * size + rank + x[blockIdx.x] - x[blockIdx.x];
            }""",
        "ranks",
        out_shape=lambda x: x,
        grid=8,
        block=1,
        cluster=4,
    )

    @jax.jit
    def f(x):
        for _ in range(runs):
            x = ranks(x)
        return x

    for _ in range(3):
        np.testing.assert_array_equal(f(jnp.zeros(8, jnp.int32)), [400, 401, 402, 403] * 2)


@pytest.mark.parametrize("runs", [1, 8])
@pytest.mark.parametrize("cooperative", [False, True])
def test_cooperative_launches_survive_capture(runs, cooperative):
    # The address of the grid's barrier, which only a cooperative launch has (what
    # cooperative_groups' grid_group::is_valid() looks at).
    probe = jge.cuda_kernel(
        r"""extern "C" __global__ void probe(const int* x, int* out) {
              unsigned int high, low;
              asm volatile("mov.u32 %0, %%envreg1;" : "=r"(high));
              asm volatile("mov.u32 %0, %%envreg2;" : "=r"(low));
              out[blockIdx.x] = (high | low) != 0 ? 1 : x[blockIdx.x] * 0;
            }""",
        "probe",
        out_shape=lambda x: x,
        grid=8,
        block=1,
        cooperative=cooperative,
    )

    @jax.jit
    def f(x):
        for _ in range(runs):
            x = probe(x)
        return x

    for _ in range(3):
        np.testing.assert_array_equal(f(jnp.arange(8)), np.full(8, int(cooperative)))


def test_a_cooperative_grid_larger_than_the_device_is_refused():
    kernel = make_add(grid=10_000_000, block=1024, cooperative=True)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"cooperative launch of 10000000 blocks"):
        jax.block_until_ready(kernel(jnp.zeros(1), a=1.0))


@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2])
def test_eight_bit_floats(dtype):
    widen = jge.cuda_kernel(
        "template <typename T> __global__ void widen(const T* x, float* out) {"
        " out[threadIdx.x] = float(x[threadIdx.x]); }",
        "widen<{x}>",
        out_shape=lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32),
        grid=1,
        block=8,
    )
    x = jnp.arange(8.0).astype(dtype)
    np.testing.assert_array_equal(widen(x), x.astype(jnp.float32))


def test_images_without_source():
    major, minor = jge.device_info().compute_capability
    image = compile_source(Source(ADD, "<add>"), ("add",), f"sm_{major}{minor}", None)
    add = jge.kernel_call(
        image.data,
        "add",
        params={"x": "const float*", "out": "float*", "a": "float"},
        out_shape=lambda x, **_: x,
        grid=4,
        block=64,
    )
    np.testing.assert_array_equal(add(jnp.zeros(256), a=2.0), np.full(256, 2))
    wrong = jge.kernel_call(
        image.data, "ad", params={"x": "float*"}, out_shape=jnp.zeros(4), grid=1, block=1
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"'ad' is not in its image; .* has: add"):
        jax.block_until_ready(wrong())


def test_a_block_larger_than_the_kernel_can_run_is_its_own_error():
    """Alone and in a region; what comes later is well."""
    heavy = jge.cuda_kernel(
        'extern "C" __global__ void __launch_bounds__(128) heavy(float* out) { out[0] = 1; }',
        "heavy",
        out_shape=jax.ShapeDtypeStruct((1,), jnp.float32),
        grid=1,
        block=1024,
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"'heavy' asks for block .* is 128"):
        jax.block_until_ready(heavy())
    add = make_add()
    region = jax.jit(jge.graph(lambda x: (add(x, a=1.0), heavy(), add(x, a=2.0))))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"'heavy' asks for block .* is 128"):
        jax.block_until_ready(region(jnp.zeros(256)))
    np.testing.assert_array_equal(make_add()(jnp.zeros(256), a=1.0), np.ones(256))


FAULT = """
import jax, jax.numpy as jnp
import jax_graphenc as jge
def make(name, body):
    return jge.cuda_kernel(
        f'extern "C" __global__ void {name}(const float* x, float* out) {{ {body} }}', name,
        out_shape=lambda x: x, grid=1, block=1)
good = make("good", "out[0] = x[0];")
bad = make("bad", "((float*)16)[0] = x[0]; out[0] = 0;")
x = jnp.zeros(4)
good(x).block_until_ready()
for kernel in (bad, good):
    try:
        kernel(x).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print("ERROR", kernel.__name__, str(error).splitlines()[0])
"""


def run_fault(**environment):
    # A fault ends the context, so it has a process of its own.
    done = subprocess.run(
        [sys.executable, "-c", FAULT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_fault_is_noticed_at_the_next_call_which_says_how_to_find_it():
    out = run_fault()
    assert "JAX_GRAPHENC_DEBUG=1" in out, out


def test_debug_names_the_kernel_that_failed():
    out = run_fault(JAX_GRAPHENC_DEBUG="1")
    assert "kernel 'bad' failed: CUDA_ERROR_ILLEGAL_ADDRESS" in out, out

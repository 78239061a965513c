"""Kernels that write a `__device__` variable of their module are ordered among themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.compiler import nvrtc_library

X = np.arange(32, dtype=np.float32)
KERNEL = 'extern "C" __global__ void k(const float* x, float* y) { int i = threadIdx.x; %s }'

WRITES = {
    "a variable": ("__device__ int counter;", "y[i] = x[i]; atomicAdd(&counter, 1);"),
    "with a value": ("__device__ float last = 3;", "y[i] = last; last = x[i];"),
    "a static one": ("static __device__ int count;", "y[i] = x[i] + count++;"),
    "in a namespace": ("namespace a { __device__ float sum; }", "y[i] = a::sum += x[i];"),
    "a template": ("template <class T> __device__ T of;", "y[i] = of<int>++;"),
    "through a pointer": (
        "__device__ float rows[32];",
        "float* p = rows; p[i] += x[i]; y[i] = *p;",
    ),
}
WRITES_NONE = {
    "nothing": ("", "y[i] = x[i];"),
    "a constant": ("__constant__ float w[32] = {1, 2};", "y[i] = x[i] * w[i];"),
    "shared memory": (
        "",
        "__shared__ float s[32]; s[i] = x[i]; __syncthreads(); y[i] = s[31 - i];",
    ),
    "dynamic": ("", "extern __shared__ float s[]; s[i] = x[i]; __syncthreads(); y[i] = s[31 - i];"),
    "printf": ("", 'y[i] = x[i]; if (x[i] > 1e9f) printf("%d", i);'),
    "mathematics": ("", "y[i] = sinf(x[i]) + cosf(x[i]) + powf(x[i], 1.5f) + (float)sin(x[i]);"),
    "an assertion": ("", "assert(x[i] > -1); y[i] = x[i];"),
}


def kernel(case, **more):
    variables, body = case
    shared = 128 if "extern" in body else 0
    return jge.cuda_kernel(
        variables + KERNEL.replace("%s", body),
        "k",
        out_shape=lambda x: x,
        grid=1,
        block=32,
        shared_mem=shared,
        **more,
    )


def edges(k, platform="cpu"):
    program = jge.explain(jge.graph(lambda x, y: (k(x), k(y))), X, X, platform=platform).programs[0]
    return [[edge.on for edge in node.after] for node in program.nodes]


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", WRITES)
def test_writers_are_ordered_on_the_cpu(name):
    assert edges(kernel(WRITES[name])) == [[], [0]]


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", WRITES_NONE)
def test_others_are_not_ordered_on_the_cpu(name):
    assert edges(kernel(WRITES_NONE[name])) == [[], []]


@pytest.mark.parametrize("targets", ["sm_90a", "compute_80", "sm_80,sm_90a,compute_90"])
def test_cuda_images_tell_the_same(targets):
    try:
        nvrtc_library.version()
    except jge.CompilerNotFoundError as error:
        pytest.skip(str(error))
    with jge.options(cuda_targets=targets):
        for name, case in WRITES.items():
            assert (name, edges(kernel(case), "cuda")) == (name, [[], [0]])
        for name, case in WRITES_NONE.items():
            assert (name, edges(kernel(case), "cuda")) == (name, [[], []])


@pytest.mark.usefixtures("cpu")
def test_they_stay_out_of_xlas_command_buffers():
    """Where two that share no array might run at once."""
    for cases, uncaptured in ((WRITES, True), (WRITES_NONE, False)):
        for case in cases.values():
            k = kernel(case)
            for f in (k, jge.graph(lambda x, k=k: k(k(x)))):
                assert ("uncaptured_program" in jax.jit(f).lower(X).as_text()) == uncaptured


@pytest.mark.usefixtures("cpu")
def test_explain_says_why():
    k = kernel(WRITES["a variable"])
    text = jge.explain(jge.graph(lambda x, y: (k(x), k(y))), X, X).text(width=200)
    assert "after #0: read-after-write of __device__ variables" in text


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("seed", range(4))
def test_batches_of_a_kernel_take_turns_with_its_counter(seed):
    """The last block of each launch, which a counter finds, does more."""
    k = jge.cuda_kernel(
        """__device__ unsigned done;
        extern "C" __global__ void last(const float* x, float* y, int n) {
          if (threadIdx.x == 0 && atomicAdd(&done, 1u) == gridDim.x - 1) {
            float sum = 0;
            for (int i = 0; i < n; ++i) sum += x[i];
            *y = sum;
            done = 0;
          }
        }""",
        "last",
        out_shape=lambda x, n: jax.ShapeDtypeStruct((), x.dtype),
        grid=8,
        block=1,
    )
    xs = jnp.asarray(np.random.default_rng(seed).integers(0, 9, (12, 20)).astype(np.float32))
    run = jax.jit(jge.graph(lambda xs: jax.vmap(lambda x: k(x, n=20))(xs)))
    _core.host_set_order_seed(seed)
    try:
        for _ in range(3):
            np.testing.assert_array_equal(run(xs), xs.sum(1))
    finally:
        _core.host_set_order_seed(None)
    nodes = jge.explain(run, xs).programs[0].nodes
    assert [[edge.on for edge in node.after] for node in nodes] == [[], *([i] for i in range(11))]


@pytest.mark.parametrize("seed", range(4))
def test_an_encoder_orders_them_too(seed):
    k = jge.cuda_kernel(
        """__device__ float last;
        extern "C" __global__ void swap(const float* x, float* y) { *y = last; last = *x; }""",
        "swap",
        out_shape=lambda x: x,
        grid=1,
        block=1,
    )
    inputs, out = np.arange(9, dtype=np.float32), np.zeros(9, np.float32)
    _core.host_set_order_seed(seed)
    try:
        with jge.options(graph_after=0, max_ops_per_graph=100), jge.Encoder() as encoder:
            for i in range(9):
                encoder.append(k, inputs[i : i + 1], out[i : i + 1])
            encoder.synchronize()
    finally:
        _core.host_set_order_seed(None)
    np.testing.assert_array_equal(out[1:], inputs[:-1])

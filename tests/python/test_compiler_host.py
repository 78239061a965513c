"""test_compiler_host.py: CUDA source compiled for the CPU, and run."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from host_kernel import Failed, LoadedImage, loaded

from jax_graphenc.base.errors import (
    CompilerNotFoundError,
    KernelCompileError,
    UnsupportedOnCpuError,
)
from jax_graphenc.compiler import cxx, host, process
from jax_graphenc.compiler.diagnostics import UnknownKernelError
from jax_graphenc.compiler.source import Image, Source

SAXPY = """extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""


def compile_(text: str, *names: str, **more: object) -> Image:
    source = Source(text, "my kernel.cu", line=100, **more)  # type: ignore[arg-type]
    return host.compile_shared_object(source, names)


def kernel(body: str, params: str = "float* y, int n") -> str:
    return f'extern "C" __global__ void k({params}) {{\n  {body}\n}}\n'


def test_saxpy() -> None:
    image = compile_(SAXPY, "saxpy")
    (entry,) = image.entries
    assert (entry.expression, entry.symbol) == ("saxpy", "saxpy")
    assert entry.types == ("float const*", "float*", "float", "int")
    assert entry.sizes == (8, 8, 4, 4)
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    with loaded(image) as module:
        module.run("saxpy", (4,), (256,), x, y, np.float32(2), np.int32(999))
    np.testing.assert_array_equal(y, np.where(np.arange(1000) < 999, 1 + 2 * x, 1))


def test_types_behind_aliases_and_templates() -> None:
    text = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    using cvec = const float4*;
    struct P { char c; double d; };
    template <typename T, int N> __global__ void t(const T* x, T* y) { y[0] = x[N]; }
    template __global__ void t<double, 3>(const double*, double*);
    namespace ns { __global__ void many(cvec v, P p, dim3 d, __half h, const __nv_bfloat16* b,
                                        bool f, unsigned long long u, void (*g)(int, P)) {} }
    extern "C" __global__ void none() {}
    __global__ void noex(float* x) noexcept { x[0] = 1; }
    """
    names = ("t<float, 2>", "t<double,3>", "ns::many", "none", "noex")
    entries = compile_(text, *names).entries
    assert [e.expression for e in entries] == list(names)
    assert entries[0].types == ("float const*", "float*")
    assert entries[1].types == ("double const*", "double*")
    assert entries[2].types == (
        *("float4 const*", "P", "dim3", "__half", "__nv_bfloat16 const*", "bool"),
        *("unsigned long long", "void (*)(int, P)"),
    )
    assert entries[2].sizes == (8, 16, 12, 2, 8, 1, 8, 8)
    assert (entries[3].types, entries[3].sizes) == ((), ())
    assert entries[4].types == ("float*",)


def test_offsets_are_natural() -> None:
    image = compile_(kernel("", "char a, double b, short c, float4 d, bool e"), "k")
    with loaded(image) as module:
        params = module.kernels["k"].params[:5]
        assert [p.offset for p in params] == [0, 8, 16, 32, 48]
        assert [p.size for p in params] == [1, 8, 2, 16, 1]


def test_order_of_threads() -> None:
    body = """int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    o[(*n)++] = b * blockDim.x * blockDim.y * blockDim.z + t;"""
    order, n = np.zeros(2 * 3 * 4 * 5 * 6 * 7, np.int32), np.zeros(1, np.int32)
    with loaded(compile_(kernel(body, "int* o, int* n"), "k")) as module:
        module.run("k", (2, 3, 4), (5, 6, 7), order, n)
    np.testing.assert_array_equal(order, np.arange(order.size))


def test_parameters_are_each_threads_own() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_float), ("b", ctypes.c_double))

    text = "struct P { float a; double b; };\n" + kernel(
        "x += threadIdx.x; p.b += x[0]; n -= 1; y[threadIdx.x] = p.a + p.b + n;",
        "const float* x, float* y, P p, int n",
    )
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    with loaded(compile_(text, "k")) as module:
        module.run("k", (1,), (8,), x, y, Pair(2, 0.5), np.int32(10))
    np.testing.assert_array_equal(y, x + 11.5)


def test_empty_grid_runs_nothing() -> None:
    with loaded(compile_(kernel("__trap();"), "k")) as module:
        module.run("k", (0,), (8,), np.zeros(1, np.float32), np.int32(0))


# ---- What kernels may use ------------------------------------------------------------------------


def test_atomics() -> None:
    body = """int i = threadIdx.x;
    atomicAdd(&f[0], 1); atomicAdd(&d[0], 0.5); atomicAdd(&u[0], 3ull);
    atomicAdd(&n[0], 1); atomicSub(&n[1], 1); atomicMin(&n[2], -i); atomicMax(&n[3], i);
    atomicOr(&n[4], 1 << i); atomicAnd(&n[5], ~(1 << i)); atomicXor(&n[6], i);
    atomicInc((unsigned*)&n[7], 5); atomicDec((unsigned*)&n[8], 5);
    if (i == 3) { n[9] = atomicExch(&n[10], 7); n[11] = atomicCAS(&n[12], 0, 9);
                  n[13] = atomicCAS(&n[12], 0, 10); }
    atomicAdd_block(&n[14], 2);"""
    f, d, u = np.zeros(1, np.float32), np.zeros(1), np.zeros(1, np.uint64)
    n = np.zeros(15, np.int32)
    n[5] = -1
    params = "float* f, double* d, unsigned long long* u, int* n"
    with loaded(compile_(kernel(body, params), "k")) as module:
        module.run("k", (1,), (20,), f, d, u, n)
    assert (f[0], d[0], u[0]) == (20, 10, 60)
    xor = np.bitwise_xor.reduce(np.arange(20))
    expected = [20, -20, -19, 19, 2**20 - 1, ~(2**20 - 1), xor, 20 % 6, (0 - 20) % 6, 0, 7, 0, 9, 9]
    assert n.tolist() == [*expected, 40]


def test_atomics_of_several_threads() -> None:
    text = kernel("atomicAdd(y, 1.0f); atomicMax(n, (int)threadIdx.x);", "float* y, int* n")
    y, n = np.zeros(1, np.float32), np.zeros(1, np.int32)
    with loaded(compile_(text, "k")) as module:
        run_threads(4, lambda: module.run("k", (1000,), (64,), y, n))
    assert y[0] == 4 * 64000
    assert n[0] == 63


def run_threads(count: int, work: object) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_have_their_own_indices() -> None:
    """Launches of different shapes at once, long enough to overlap: none sees another's indices."""
    text = "__device__ __noinline__ int here() { return blockIdx.x * blockDim.x + threadIdx.x; }\n"
    text += kernel("y[here()] += gridDim.x + blockDim.x;")  # Not inlined: indices are in memory.
    wrong: list[int] = []
    with loaded(compile_(text, "k")) as module:

        def work(block: int) -> None:
            y = np.zeros(block * 5000, np.float32)
            for _ in range(20):
                module.run("k", (5000,), (block,), y, np.int32(0))
            if (y != 20 * (5000 + block)).any():
                wrong.append(block)

        threads = [threading.Thread(target=work, args=(b,)) for b in (33, 64, 7, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_math() -> None:
    text = """
    #include <cuda_runtime.h>
    #include <math_constants.h>
    #include <cmath>
    #include <cstdint>
    """ + kernel(
        """float v = x[threadIdx.x]; float* o = y + 32 * threadIdx.x; int j = 0; float s, c;
    o[j++] = rsqrtf(v); o[j++] = __expf(v); o[j++] = __fmaf_rn(v, v, 1.f); o[j++] = sinpif(v);
    sincospif(v, &s, &c); o[j++] = c; o[j++] = max(v, 1); o[j++] = min(3, 4u); o[j++] = __logf(v);
    o[j++] = powf(v, 1.5f); o[j++] = __saturatef(v); o[j++] = std::sqrt(v); o[j++] = abs(-v);
    o[j++] = __int_as_float(__float_as_int(v)); o[j++] = normcdff(v); o[j++] = __ldg(x);
    o[j++] = __float2int_rn(2.5f * v); o[j++] = CUDART_PI_F; o[j++] = norm3df(v, v, v);
    o[j++] = fmaxf(v, NAN); o[j++] = max(NAN, v); o[j++] = cospi(0.5); o[j++] = hypotf(v, 1);""",
        "const float* x, float* y",
    )
    x = np.linspace(0.1, 3.7, 16, dtype=np.float32)
    y = np.zeros((16, 32), np.float32)
    with loaded(compile_(text, "k")) as module:
        module.run("k", (1,), (16,), x, y)
    v = x.astype(np.float64)
    erf = np.vectorize(__import__("math").erf)
    columns = [
        *(1 / np.sqrt(v), np.exp(v), v * v + 1, np.sin(np.pi * v), np.cos(np.pi * v)),
        *(np.maximum(v, 1), 3 + 0 * v, np.log(v), v**1.5, np.clip(v, 0, 1), np.sqrt(v), v, v),
        *(0.5 * (1 + erf(v / np.sqrt(2))), x[0] + 0 * v, np.rint(2.5 * v), np.pi + 0 * v),
        *(np.sqrt(3) * v, v, v, 0 * v, np.hypot(v, 1)),
    ]
    np.testing.assert_allclose(y[:, : len(columns)], np.stack(columns, 1), rtol=2e-6, atol=2e-6)


def test_conversions_saturate() -> None:
    body = """o[0] = __float2int_rz(3e9f); o[1] = __float2int_rz(-3e9f); o[2] = __float2int_rn(NAN);
    o[3] = __float2uint_rz(-5.f); o[4] = __float2uint_rz(5e9f); o[5] = __double2ll_rz(1e30);
    o[6] = __float2int_rd(-1.5f); o[7] = __float2int_ru(-1.5f); o[8] = __double2ll_rz(-1e30);
    o[9] = __float2int_rz(-2147483648.f);"""
    o = np.zeros(10, np.int64)
    with loaded(compile_(kernel(body, "long long* o"), "k")) as module:
        module.run("k", (1,), (1,), o)
    most = 2**63 - 1
    assert o.tolist() == [2**31 - 1, -(2**31), 0, 0, 2**32 - 1, most, -2, -1, -most - 1, -(2**31)]


def test_bits() -> None:
    body = """o[0] = __clz(1); o[1] = __clz(0); o[2] = __popc(0xf0f0); o[3] = __ffs(8);
    o[4] = __ffs(0);
    o[5] = __brev(1u); o[6] = __umulhi(1u << 31, 6); o[7] = __mul24(-3, 5); o[8] = __popcll(~0ull);
    o[9] = __funnelshift_l(0x80000000u, 1, 1); o[10] = __funnelshift_r(0, 1, 1);
    o[11] = __byte_perm(0x33221100u, 0x77665544u, 0x7520); o[12] = __brevll(2) >> 62;
    o[13] = __umul64hi(1ull << 63, 6); o[14] = __sad(-3, 4, 1); o[15] = __funnelshift_l(5, 9, 0);"""
    o = np.zeros(16, np.int64)
    with loaded(compile_(kernel(body, "long long* o"), "k")) as module:
        module.run("k", (1,), (1,), o)
    assert o.tolist() == [
        *(31, 32, 8, 4, 0, 2**31, 3, -15, 64, 3, 2**31, 0x77552200, 1, 3, 8, 9),
    ]


def test_halves_round_as_numpy() -> None:
    text = "#include <cuda_fp16.h>\n" + kernel(
        "int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) { h[i] = __float2half(x[i]);"
        " b[i] = __half2float(h[i]); d[i] = __double2half(z[i]); }",
        "const float* x, const double* z, __half* h, float* b, __half* d, int n",
    )
    rng = np.random.default_rng(0)
    every = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    every = every[np.isfinite(every)]
    between = (every[:-1] + every[1:]) / 2  # Ties, which go to even.
    bits = rng.integers(0, 2**32, 50000, dtype=np.uint32).view(np.float32)
    near = (rng.standard_normal(50000) * 10.0 ** rng.integers(-9, 6, 50000)).astype(np.float32)
    x = np.concatenate([every, between, np.nextafter(between, 0), bits, near])
    x = x[~np.isnan(x)]
    z = x * (1 + rng.choice([-1, 0, 1], x.size) * 2.0**-40)
    h, b, d = np.zeros(x.size, np.float16), np.zeros(x.size, np.float32), np.zeros(x.size, "f2")
    with loaded(compile_(text, "k")) as module:
        module.run("k", (-(-x.size // 256),), (256,), x, z, h, b, d, np.int32(x.size))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(h.view(np.uint16), x.astype(np.float16).view(np.uint16))
        np.testing.assert_array_equal(b, h.astype(np.float32))
        np.testing.assert_array_equal(d, z.astype(np.float16))


def test_bfloat16_and_pairs() -> None:
    text = "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n" + kernel(
        "b[0] = __float2bfloat16(1.00390625f); b[1] = __hadd(b[0], __nv_bfloat16(2.0f));"
        "b[2] = __float2bfloat16(NAN); __half2 h = __floats2half2_rn(1.5f, -2.0f);"
        "h = __hfma2(h, h, h); f[0] = __low2float(h); f[1] = __high2float(h);"
        "f[2] = __half2float(hsqrt(__half(2.25))); f[3] = __half(1.0f) < __half(2.0f);",
        "__nv_bfloat16* b, float* f",
    )
    b, f = np.zeros(3, np.uint16), np.zeros(4, np.float32)
    with loaded(compile_(text, "k")) as module:
        module.run("k", (1,), (1,), b, f)
    assert b.tolist() == [0x3F80, 0x4040, 0x7FFF]
    assert f.tolist() == [3.75, 2.0, 1.5, 1.0]


def test_complex() -> None:
    text = "#include <cuComplex.h>\n" + kernel(
        "o[0] = cuCadd(a[0], a[1]); o[1] = cuCsub(a[0], a[1]); o[2] = cuCmul(a[0], a[1]);"
        "o[3] = cuCdiv(a[0], a[1]); o[4] = cuConj(a[0]);"
        "o[5] = make_cuDoubleComplex(cuCabs(a[0]), cuCimag(a[1]));"
        "cuFloatComplex f = cuCmulf(make_cuFloatComplex(1, 2), make_cuComplex(3, 4));"
        "o[6] = cuComplexFloatToDouble(f);",
        "const cuDoubleComplex* a, cuDoubleComplex* o",
    )
    a, o = np.array([1 + 2j, -3 + 0.5j]), np.zeros(7, np.complex128)
    with loaded(compile_(text, "k")) as module:
        module.run("k", (1,), (1,), a, o)
    p, q = a
    expected = [p + q, p - q, p * q, p / q, p.conjugate(), abs(p) + 0.5j, (1 + 2j) * (3 + 4j)]
    np.testing.assert_allclose(o, expected, rtol=1e-15)


def test_standard_headers_and_cudas_qualifiers() -> None:
    """libstdc++ and CUDA use some names in different ways."""
    names = ("algorithm", "future", "memory")
    text = "".join(f"#include <{name}>\n" for name in names) + kernel(
        "auto p = std::make_unique<float>(twice(3.0f)); y[0] = *p;"
    )
    y = np.zeros(1, np.float32)
    image = compile_("__device__ __noinline__ float twice(float);\n" + text + TWICE, "k")
    with loaded(image) as module:
        module.run("k", (1,), (1,), y, np.int32(0))
    assert y[0] == 6


TWICE = "__device__ __noinline__ float twice(float v) { return 2 * v; }\n"


def test_layout_of_vector_types() -> None:
    sizes = {"char": 1, "short": 2, "int": 4, "long": 8, "longlong": 8}
    sizes |= {f"u{name}": size for name, size in sizes.items()} | {"float": 4, "double": 8}
    checks = []
    for name, size in sizes.items():
        for count in (1, 2, 3, 4):
            align = {1: size, 2: 2 * size, 3: size, 4: min(4 * size, 16)}[count]
            checks.append(
                f"static_assert(sizeof({name}{count}) == {size * count} && "
                f"alignof({name}{count}) == {align});"
            )
    compile_("\n".join(checks) + kernel("y[0] = make_float4(1, 2, 3, 4).w;"), "k")


def test_device_globals_and_constants() -> None:
    text = """
    __constant__ float coefficients[3] = {0.25f, 0.5f, 0.25f};
    __device__ int counter = 5;
    __device__ __forceinline__ float twice(float v) { return 2 * v; }
    __device__ __noinline__ float half_of(float v) { return v / 2; }
    extern "C" __global__ void __launch_bounds__(128, 2) k(float* __restrict__ y, int n) {
      #pragma unroll
      for (int i = 0; i < 3; ++i) y[i] = twice(coefficients[i]) + half_of(counter);
    }
    """
    y = np.zeros(3, np.float32)
    with loaded(compile_(text, "k")) as module:
        module.run("k", (1,), (1,), y, np.int32(0))
    assert y.tolist() == [3.0, 3.5, 3.0]


def test_printf() -> None:
    text = kernel('printf("thread %d of %d\\n", threadIdx.x, n);')
    script = f"""
import numpy as np
import test_compiler_host as t
with t.loaded(t.compile_({text!r}, "k")) as m:
    m.run("k", (1,), (2,), np.zeros(1, np.float32), np.int32(7))
"""
    assert run_python(script) == b"thread 0 of 7\nthread 1 of 7\n"


def run_python(script: str) -> bytes:
    here = Path(__file__).parent
    inherited = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join((str(here), str(here.parents[1]), inherited))
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    ).stdout


# ---- Failing while it runs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("assert(threadIdx.x < 5);", 710, "assertion `threadIdx.x < 5' failed"),
        ("if (threadIdx.x == 5) __trap();", 719, "__trap()"),
    ],
)
def test_failure_names_place_and_thread(body: str, code: int, message: str) -> None:
    text = "#include <cassert>\n#include <assert.h>\n" + kernel(f"y[threadIdx.x] += 1; {body}")
    y = np.zeros(8, np.float32)
    with loaded(compile_(text, "k")) as module:
        for _ in range(3):  # Nothing stays broken.
            with pytest.raises(Failed) as caught:
                module.run("k", (2, 3), (8,), y, np.int32(0))
        place = "in block (0,0,0), thread (5,0,0)"
        assert caught.value.args == (code, f"my kernel.cu:103: {message} {place}")
        with pytest.raises(Failed) as caught:
            module.run("k", (2, 3), (8,), y, np.int32(0), message_size=12)
        assert caught.value.args == (code, "my kernel.c")
        with pytest.raises(Failed) as caught:
            module.run("k", (2, 3), (8,), y, np.int32(0), message_size=0)
        assert caught.value.args == (code, "untouched")
    assert y.tolist() == [5] * 6 + [0] * 2


def test_failure_leaves_noexcept_functions() -> None:
    text = "__device__ void inner(int i) noexcept { assert(i != 3); }\n" + kernel(
        "inner(threadIdx.x);"
    )
    with loaded(compile_(text, "k")) as module, pytest.raises(Failed, match="assertion `i != 3'"):
        module.run("k", (1,), (8,), np.zeros(1, np.float32), np.int32(0))


def test_failures_of_several_threads() -> None:
    text = kernel("y[0] += 1; assert((int)threadIdx.x != n);")
    wrong: list[object] = []

    with loaded(compile_(text, "k")) as module:

        def work(n: int) -> None:
            for _ in range(200):
                try:
                    module.run("k", (1,), (64,), np.zeros(1, np.float32), np.int32(n))
                    wrong.append("no error")
                except Failed as error:
                    if f"thread ({n},0,0)" not in str(error):
                        wrong.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in (3, 30, 60)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_ndebug_switches_assert_off() -> None:
    image = compile_(kernel("assert(false); y[0] = 1;"), "k", defines=(("NDEBUG", "1"),))
    y = np.zeros(1, np.float32)
    with loaded(image) as module:
        module.run("k", (1,), (1,), y, np.int32(0))
    assert y[0] == 1


# ---- What is refused -----------------------------------------------------------------------------


GROUPS = {"headers": ("cooperative_groups.h",), "defines": (("cg", "cooperative_groups"),)}


@pytest.mark.parametrize(
    ("body", "construct"),
    [
        ('asm volatile("mov.u32 %0, %%laneid;" : "=r"(n)); y[0] = n;', "inline PTX (asm)"),
        ('asm("membar.gl;");', "inline PTX (asm)"),
        ("y[0] = tex2D<float>(n, 1, 1);", "textures and surfaces (tex2D)"),
        ("y[0] = __fadd_rz(y[0], 1);", "__fadd_rz()"),
        ("k<<<1, 2>>>(y, n);", "a kernel that launches kernels (<<<)"),
        ("auto grid = cg::this_grid(); grid.sync();", "grid.sync()"),
        ("cg::this_cluster().sync();", "groups of blocks (this_cluster)"),
        ("cg::thread_group g = cg::this_thread_block();", "groups of a kind known at run time"),
        ("__mbarrier_t b; __mbarrier_init(&b, 1);", "asynchronous copies (__mbarrier_t)"),
        ("extern __shared__ CUtensorMap map[];", "asynchronous copies (CUtensorMap)"),
        ("nvcuda::wmma::fill_fragment(y, 0);", "tensor core operations (wmma)"),
        ("cub::BlockReduce<float, 32> reduce;", "cub is not available on the CPU"),
    ],
)
def test_refused_with_line_and_way_out(body: str, construct: str) -> None:
    with pytest.raises(UnsupportedOnCpuError) as caught:
        compile_(kernel(f"// asm(), tex2D and wmma in a comment\n  {body}"), "k", **GROUPS)
    message = str(caught.value)
    explanation = message.splitlines()[1]
    assert explanation.startswith(f"my kernel.cu:102: {construct}")
    assert "reference=" in explanation
    assert f"  {body}\n" in message  # The source line, under the compiler's own words.
    assert "my kernel.cu:102" in caught.value.log


@pytest.mark.parametrize(
    "header", ["mma.h", "cuda_pipeline.h", "cuda_awbarrier.h", "cooperative_groups/memcpy_async.h"]
)
def test_refused_headers(header: str) -> None:
    with pytest.raises(UnsupportedOnCpuError, match=r"my kernel\.cu:100") as caught:
        compile_(f"#include <{header}>\n{SAXPY}", "saxpy")
    assert "is not supported on the CPU" in str(caught.value)


@pytest.mark.parametrize("checked", [False, True])
def test_more_static_shared_memory_than_a_gpu_has(checked: bool) -> None:
    text = """template <class T> __global__ void t(T* y) {
      __shared__ T s[12001 / 2], r[12000 / 2];
      s[threadIdx.x] = y[0]; r[threadIdx.x] = y[1];
      __syncthreads();
      y[threadIdx.x] = s[threadIdx.x / 2] + r[3];
    }
    __device__ float table[100000];
    extern "C" __global__ void large(float* y) { table[threadIdx.x] = *y; *y = table[*y > 0]; }
    """
    source = Source(text, "my kernel.cu", line=100)
    host.compile_shared_object(source, ["t<float>", "large"], checked=checked)
    with pytest.raises(KernelCompileError) as caught:
        host.compile_shared_object(source, ["t<double>"], checked=checked)
    message = str(caught.value)
    assert "my kernel.cu:101: error: 96000 bytes of static __shared__ memory" in message
    assert "'s' (48000)" in message
    assert "'r' (48000)" in message
    assert "at most 49152" in message


def test_static_shared_memory_outside_of_a_kernel() -> None:
    text = "__shared__ float outside[20000];\n" + kernel(
        "outside[threadIdx.x] = n; __syncthreads(); y[0] = outside[3];"
    )
    with pytest.raises(KernelCompileError, match=r"kernel\.cu:100: error: 80000 bytes .*'outside'"):
        compile_(text, "k")


def test_empty_asm_is_allowed() -> None:
    compile_(kernel('asm volatile("" ::: "memory"); y[0] = 1;'), "k")


def test_headers_before_the_text() -> None:
    text = "template <class T> __global__ void t(T* y) { y[0] = T(1.0f); }"
    image = compile_(text, "t<__half>", headers=("cuda_fp16.h",))
    assert image.entries[0].types == ("__half*",)
    with pytest.raises(KernelCompileError, match=r"kernel\.cu:100"):
        compile_(text.replace("y[0]", "z[0]"), "t<__half>", headers=("cuda_fp16.h",))


@pytest.mark.skipif("clang" in host.identity(), reason="Clang compiles every kernel of a source")
def test_other_kernels_do_not_matter() -> None:
    """A source may hold kernels for the GPU alone, as long as they are not asked for."""
    text = SAXPY + '\n__global__ void other(float* y) { asm volatile("trap;"); }\n'
    compile_(text, "saxpy")
    with pytest.raises(UnsupportedOnCpuError):
        compile_(text, "other")


# ---- Errors --------------------------------------------------------------------------------------


def test_compile_error_shows_line_and_caret() -> None:
    with pytest.raises(KernelCompileError) as caught:
        compile_(kernel("\ty[0] = wrong_name;"), "k")
    message = str(caught.value)
    assert type(caught.value) is KernelCompileError
    assert '"k" in my kernel.cu does not compile for cpu' in message
    assert "my kernel.cu:101" in message
    line, caret = re.findall(r"^(.*y\[0\] = wrong_name;)\n(.*)\^", message, re.MULTILINE)[0]
    assert len(line.expandtabs()) - len("wrong_name;") == len(caret.expandtabs())
    assert "wrong_name" in caught.value.log


def test_undefined_function() -> None:
    text = "extern __device__ float elsewhere(float);\n" + kernel("y[0] = elsewhere(1);")
    with pytest.raises(KernelCompileError, match=r"undefined (reference|symbol).*elsewhere"):
        compile_(text, "k")


def test_reference_parameter() -> None:
    with pytest.raises(KernelCompileError, match="a kernel cannot take a reference"):
        compile_("__global__ void k(float& x) {}", "k")


@pytest.mark.parametrize("name", ["nothing", "scale<floaty>", "scale", "ns::saxpy"])
def test_unknown_kernel(name: str) -> None:
    text = SAXPY + "template <class T> __global__ void scale(T* x) { x[0] = 2; }\nnamespace ns {}\n"
    with pytest.raises(UnknownKernelError, match=f'"{name}" does not name one kernel'):
        compile_(text, "saxpy", name)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("JAX_GRAPHENC_CXX", raising=False)
    with pytest.raises(CompilerNotFoundError) as caught:
        compile_(SAXPY, "saxpy")
    for word in ("g++, clang++, c++", "apt install g++", "reference=", "ziglang"):
        assert word in str(caught.value)
    monkeypatch.setenv("JAX_GRAPHENC_CXX", "no-such-compiler --flag")
    with pytest.raises(CompilerNotFoundError, match=r"\$JAX_GRAPHENC_CXX, 'no-such-compiler'"):
        host.identity()


def test_compiler_of_several_words(monkeypatch: pytest.MonkeyPatch) -> None:
    path = shlex.join(cxx.find_compiler())
    monkeypatch.setenv("JAX_GRAPHENC_CXX", f"env 'LC_MESSAGES=C' {path}")
    assert compile_(SAXPY, "saxpy").entries[0].symbol == "saxpy"
    assert path in host.identity()


def test_compiler_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    pid = tmp_path / "pid"
    slow.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo slow 1.0; exit; fi\n'
        f"sleep 1000 &\necho $! > {pid}\nwait\n"
    )
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAX_GRAPHENC_CXX", str(slow))
    monkeypatch.setattr(process, "_TIMEOUT_S", 0.5)
    with pytest.raises(KernelCompileError, match=r"longer than 0\.5 s"):
        compile_(SAXPY, "saxpy")
    # The signal has been sent when the call returns; the kernel may take a moment to act on it.
    status = Path(f"/proc/{pid.read_text().strip()}/status")
    for _ in range(1000):
        if not status.exists() or "Z (zombie)" in status.read_text():
            return
        time.sleep(0.01)
    pytest.fail("the compiler's child is still running")


# ---- Options, includes and reproducibility -------------------------------------------------------


def test_defines_and_options() -> None:
    text = kernel("y[0] = A + B + D;")
    options = ("--use_fast_math", "-DB=20", "--define-macro", "D=300", "-lineinfo", "--std=c++20")
    y = np.zeros(1, np.float32)
    with loaded(compile_(text, "k", defines=(("A", "1"),), options=options)) as module:
        module.run("k", (1,), (1,), y, np.int32(0))
    assert y[0] == 321


def test_users_macros_stay_out_of_our_headers() -> None:
    names = ("T", "F", "N", "A", "B", "x", "y", "name", "launch", "params", "Args", "kernel", "old")
    names = (*names, "value", "block", "grid", "jge", "From", "To", "index", "Failure", "label")
    text = "".join(f"#define {name} 3\n" for name in names) + (
        'extern "C" __global__ void k(float* p) { p[0] = T + N; }\n'
    )
    options = tuple(f"-D{name}=3" for name in names)
    y = np.zeros(1, np.float32)
    defines = tuple((name, "3") for name in names)
    for image in (compile_(text, "k", options=options), compile_(text, "k", defines=defines)):
        with loaded(image) as module:
            module.run("k", (1,), (1,), y)
        assert y[0] == 6


def test_includes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside.h").write_text("#define BESIDE 1\n")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "further.h").write_text("#define FURTHER 2\n")
    path = tmp_path / "kernel.cu"
    path.write_text(
        '#include "beside.h"\n#include <further.h>\n' + kernel("y[0] = BESIDE + FURTHER;")
    )
    monkeypatch.chdir(tmp_path)
    source = Source(path.read_text(), str(path), options=("-Iextra",), folder=tmp_path)
    y = np.zeros(1, np.float32)
    with loaded(host.compile_shared_object(source, ["k"])) as module:
        module.run("k", (1,), (1,), y, np.int32(0))
    assert y[0] == 3


def test_same_bytes_in_every_process() -> None:
    text = kernel("printf(__FILE__ __DATE__ __TIME__); y[0] = 1;") + "template <class T> void f(T);"
    here = compile_(text, "k").data
    script = f"""
import sys, tempfile
tempfile.tempdir = tempfile.mkdtemp()
import test_compiler_host as t
sys.stdout.buffer.write(t.compile_({text!r}, "k").data)
"""
    there = run_python(script)
    assert here == there
    assert b"jax_graphenc_" not in here  # The temporary folder's name.


def test_modules_of_one_name_are_apart() -> None:
    modules: list[LoadedImage] = []
    for value in (1, 2):
        with loaded(compile_(kernel(f"y[0] = {value};"), "k")) as module:
            modules.append(module)
    y = np.zeros(2, np.float32)
    modules[0].run("k", (1,), (1,), y[:1], np.int32(0))
    modules[1].run("k", (1,), (1,), y[1:], np.int32(0))
    assert y.tolist() == [1, 2]

"""Sources as people have them: kernels beside host functions, launchers, bindings and globals."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.base.errors import KernelCompileError
from jax_graphenc.compiler import host, nvcc, nvrtc
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.host_code import leave_out_host_code, read_macros
from jax_graphenc.compiler.source import Source

KERNEL = (
    "__global__ void k(const float* x, float* out) { out[threadIdx.x] = 2 * x[threadIdx.x]; }\n"
)
X = np.arange(4, dtype=np.float32)


@pytest.fixture(params=["cpu", "sm_90a"])
def target(request, monkeypatch):
    if request.param != "cpu":
        pytest.importorskip("cuda.bindings.nvrtc")
        monkeypatch.setattr(nvcc, "find", lambda: None)
    return request.param


def compiles(text, target, names=("k",), **options):
    return compile_source(Source(text, "<host>", **options), names, target, None)


HOST_CODE = {
    "main": "int main(int argc, char** argv) { k<<<1, 4>>>(nullptr, nullptr); return 0; }",
    "launcher": "void run(const float* x, float* o, cudaStream_t s) { k<<<1, 4, 0, s>>>(x, o); }",
    "launcher with spaces": "void run(float* o) { k << <1, 4 >> >(o, o); }",
    "template launcher": "template <int N> void run(float* o) { k<<<1, N>>>(o, o); }\n"
    "template void run<4>(float* o);",
    "static": "static inline cudaError_t run(float* o) { k<<<1, 4>>>(o, o); return cudaSuccess; }",
    "namespace": "namespace a { namespace { void run(float* o) { k<<<1, 4>>>(o, o); } } }",
    "extern C": 'extern "C" { void run(float* o) { k<<<1, 4>>>(o, o); } }',
    "method": "struct Runner { float* o; void run() { k<<<1, 4>>>(o, o); cudaFree(o); } };",
    "method outside": "struct Runner { void run(float* o); };\n"
    "void Runner::run(float* o) { k<<<1, 4>>>(o, o); }",
    "torch": "#include <torch/extension.h>\n#include <vector>\n"
    "std::vector<at::Tensor> run(torch::Tensor x) {\n"
    '  TORCH_CHECK(x.is_cuda(), "no");\n'
    '  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "run", ([&] { k<<<1, 4>>>(0, 0); }));\n'
    "  return {x}; }\n"
    'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, "doc"); }',
    "torch library": "#include <torch/library.h>\nvoid run(at::Tensor x) { k<<<1, 4>>>(0, 0); }\n"
    'TORCH_LIBRARY(mine, m) {\n  m.def("run(Tensor x) -> ()");\n}\n'
    'TORCH_LIBRARY_IMPL(mine, CUDA, m) { m.impl("run", &run); }',
    "pybind11": "#include <pybind11/pybind11.h>\nnamespace py = pybind11;\n"
    "void run(py::object x) { k<<<1, 4>>>(0, 0); }\n"
    'PYBIND11_MODULE(mine, m) { m.def("run", run); }',
    "cublas": "#include <cublas_v2.h>\nstatic cublasHandle_t handle;\n"
    "void run(cublasHandle_t h, float* o) { cublasCreate(&h); k<<<1, 4>>>(o, o); }",
    "thrust": "#include <thrust/device_vector.h>\n#include <thrust/sort.h>\n"
    "void run(thrust::device_vector<float>& v) { thrust::sort(v.begin(), v.end()); }",
    "helper_cuda": "#include <helper_cuda.h>\n"
    "void run() { checkCudaErrors(cudaDeviceSynchronize()); k<<<1, 4>>>(0, 0); }",
    "nvtx": '#include <nvtx3/nvToolsExt.h>\nvoid run() { nvtxRangePush("run"); nvtxRangePop(); }',
    "streams of C++": "#include <iostream>\n#include <string>\n#include <map>\n"
    "void show(const std::string& s, std::map<int, std::string> m) { std::cout << s; }",
    "computed global": "int query();\nstatic int devices = query();\n",
    "conditions": "void run(float* o) {\n#ifdef DEBUG\n  k<<<1, 1>>>(o, o);\n#else\n"
    "  k<<<1, 4>>>(o, o);\n#endif\n}",
    "lambda": "auto launch = [](float* o) { k<<<1, 4>>>(o, o); };",
}


@pytest.mark.parametrize("code", HOST_CODE.values(), ids=HOST_CODE)
def test_host_code_may_stand_beside_a_kernel(code, target):
    compiles(KERNEL + code, target)
    compiles(
        code.replace("k<<<", "later<<<").replace("k << <", "later << <") + "\n" + KERNEL, target
    )


def test_what_is_left_out_runs(tmp_path):
    path = tmp_path / "runner.cu"
    path.write_text("#include <torch/extension.h>\n" + KERNEL + HOST_CODE["launcher"])
    kernel = jge.cuda_kernel(path, "k", out_shape=lambda x: x, grid=1, block=4)
    np.testing.assert_array_equal(kernel(X), 2 * X)


UNANNOTATED = {
    "constexpr": "constexpr int twice(int a) { return 2 * a; }\n",
    "function": "inline int twice(int a) { return 2 * a; }\n",
    "method": "struct Two { int by; int times(int a) const { return by * a; } };\n"
    "__device__ int twice(int a) { return Two{2}.times(a); }\n",
    "decltype": "int twice(int a) { return 2 * a; }\nusing Twice = decltype(twice(1));\n",
}


@pytest.mark.parametrize("code", UNANNOTATED.values(), ids=UNANNOTATED)
def test_functions_without_annotations_are_device_functions(code, target):
    compiles(f"{code}__global__ void k(int* out) {{ out[0] = twice(3); }}\n", target)


def test_a_host_function_that_a_kernel_needs_is_named(target):
    text = (
        "#include <torch/extension.h>\n"
        "float weight(int n) { return torch::ones(n).item<float>(); }\n"
        "void run(float* o) { k<<<1, 1>>>(o); }\n"
        "__global__ void k(float* out) { out[0] = weight(3); }\n"
    )
    with pytest.raises(KernelCompileError) as caught:
        compiles(text, target)
    assert "<host>:2: `weight` is a host function, and a kernel calls it" in str(caught.value)
    assert "put __device__ before it" in str(caught.value)


def test_ptx_does_not_wait_for_its_load_to_miss_a_host_function(monkeypatch):
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setattr(nvcc, "find", lambda: None)
    text = "int f(int a) { return a; }\nvoid run(float* o) { k<<<1, 1>>>(o); }\n"
    kernel = '__global__ void k(float* out) { printf("%d", 1); out[0] = %s; }\n'
    compiles(text + kernel.replace("%s", "1"), "compute_90")
    with pytest.raises(KernelCompileError, match="<host>:1: `f` is a host function, and a kernel"):
        compiles(text + kernel.replace("%s", "f(1)"), "compute_90")


def test_a_mistake_in_a_kernel_is_told_and_what_was_left_out(target):
    text = f"{HOST_CODE['main']}\n\n__global__ void k(const float* x, float* o) {{ o[0] = y; }}\n"
    with pytest.raises(KernelCompileError) as caught:
        compiles(text, target)
    assert re.search(r"<host>:3:(\d+:)? error: .*\by\b", str(caught.value))
    assert "host code, which was left out: `main` (<host>:1)." in str(caught.value)


def test_a_mistake_in_a_source_without_host_code_is_compiled_once(target, monkeypatch):
    compiler = host if target == "cpu" else nvrtc
    attempts = []
    real = compiler._compile
    monkeypatch.setattr(compiler, "_compile", lambda *a: attempts.append(a) or real(*a))
    with pytest.raises(KernelCompileError, match=r"undeclared|not declared|undefined"):
        compiles("__global__ void k(float* o) { o[0] = y; }\n", target)
    assert len(attempts) == 1


SCALE = "#pragma once\n__device__ float scale(float a) { return 2 * a; }\n"


def test_included_files_lose_their_host_code_too(tmp_path, target):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "common.h").write_text(
        '#pragma once\n#include "../scale.h"\n#include <cstdio>\n'
        'inline void check(cudaError_t e) { if (e) { printf("%s", cudaGetErrorString(e)); } }\n'
        "#define CHECK(call) check(call)\n"
    )
    (tmp_path / "scale.h").write_text(SCALE)
    path = tmp_path / "k.cu"
    path.write_text(
        '#include "deep/common.h"\n#include "scale.h"\n'
        "__global__ void k(const float* x, float* out) {\n"
        "  out[threadIdx.x] = scale(x[threadIdx.x]);\n}\n"
        "void run(float* o) { k<<<1, 4>>>(o, o); CHECK(cudaGetLastError()); }\n"
    )
    kernel = jge.cuda_kernel(path, "k", out_shape=lambda x: x, grid=1, block=4)
    compile_source(kernel.definition.source, ["k"], target, None)
    np.testing.assert_array_equal(kernel(X), 2 * X)
    # A later change is seen.
    (tmp_path / "scale.h").write_text(SCALE.replace("2", "3"))
    np.testing.assert_array_equal(kernel(X), 3 * X)


def test_a_users_header_of_a_librarys_name_is_the_users(tmp_path, target):
    (tmp_path / "helper_cuda.h").write_text("#define FACTOR 5\n")
    path = tmp_path / "k.cu"
    path.write_text(
        '#include "helper_cuda.h"\n#include <helper_cuda.h>\n'
        "__global__ void k(int* out) { out[0] = FACTOR; }\n"
    )
    source = jge.cuda_kernel(path, "k", out_shape=np.zeros(1, np.int32), grid=1, block=1)
    compile_source(source.definition.source, ["k"], target, None)


TIMES = "#include <time.h>\n#include <sys/time.h>\nvoid run(time_t t, timespec s, timeval v) {}\n"


@pytest.mark.parametrize("order", [0, 1], ids=["before CUDA's", "behind CUDA's"])
def test_times_stand_beside_cudas_headers(order, target):
    """CCCL has `time_t` and `timespec`, too, which cooperative_groups/reduce.h brings along."""
    cuda = "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\n"
    compiles("".join((TIMES, cuda)[:: -1 if order else 1]) + KERNEL, target)


def test_a_users_glut_finds_the_rest_of_opengl(tmp_path, target):
    (tmp_path / "glut.h").write_text(
        "#include <GL/gl.h>\n#include <GL/glu.h>\n"
        "extern void solid_cube(GLdouble size, GLubyte color, GLbitfield mask);\n"
    )
    compiles('#include "glut.h"\n' + KERNEL, target, folder=tmp_path)


def test_the_halves_of_pytorch_are_cudas(target):
    text = """
#include <ATen/ATen.h>
#include <c10/util/BFloat16.h>
__global__ void k(const at::Half* x, const c10::BFloat16* y, at::Half* out, float a) {
  float sum = a * x[0] + y[0] * 2;
  out[0] = sum > x[0] ? at::Half(sum) : x[0] * x[0];
  out[0] += static_cast<at::Half>(static_cast<float>(y[0]));
}
"""
    image = compiles(text, target)
    assert image.entries[0].types[0].replace("const", "").split("*")[0].strip() == "__half"


ACCESSORS = """#include <torch/extension.h>
template <class T>
__global__ void add(torch::PackedTensorAccessor32<T, 2, torch::RestrictPtrTraits> a, T b) {
  if (threadIdx.x < a.size(0)) a[threadIdx.x][0] += b;
}
template __global__ void add(torch::PackedTensorAccessor32<int, 2, torch::RestrictPtrTraits>, int);
__global__ void k(float* out) {
  torch::PackedTensorAccessor64<float, 2> a{out, {2, 2}, {2, 1}};
  a[0][1] = 3;
  a[1][0] = a[0][1] + 1;
}
"""


def test_views_of_tensors_compile(target):
    compiles(ACCESSORS, target, ("k", "add<float>"))


def test_views_of_tensors_have_their_strides():
    shape = jax.ShapeDtypeStruct((4,), jnp.float32)
    kernel = jge.cuda_kernel(ACCESSORS, "k", out_shape=shape, grid=1, block=1, zero_init=["out"])
    np.testing.assert_array_equal(kernel(), [0, 3, 4, 0])


def test_a_view_of_a_tensor_is_no_parameter():
    with pytest.raises(
        TypeError, match=r":\d+: `add` takes a view of a tensor, `a`: write `float\* a`"
    ):
        jge.cuda_kernel(ACCESSORS, "add<float>", out_shape=None, grid=1, block=1)


def test_pytorchs_halves_have_dtypes():
    kernel = jge.cuda_kernel(
        "#include <ATen/ATen.h>\n"
        "__global__ void k(const at::Half* x, c10::BFloat16* out) { out[0] = 2 * float(x[0]); }",
        "k",
        out_shape=jax.ShapeDtypeStruct((1,), jnp.bfloat16),
        grid=1,
        block=1,
    )
    assert float(kernel(np.array([1.5], np.float16))[0]) == 3


def test_a_kernel_in_an_included_file_has_its_signature_there(tmp_path):
    (tmp_path / "kernels.cuh").write_text("template <typename T>\n" + KERNEL.replace("float", "T"))
    path = tmp_path / "entry.cu"
    path.write_text('#include "kernels.cuh"\nint main() {}\n')
    kernel = jge.cuda_kernel(path, "k<{x}>", out_shape=lambda x: x, grid=1, block=4)
    np.testing.assert_array_equal(kernel(X.astype(np.int32)), 2 * X)


def test_the_source_shows_what_is_compiled(target):
    kernel = jge.cuda_kernel(
        KERNEL + HOST_CODE["main"], "k", out_shape=lambda x: x, grid=1, block=4
    )
    text = kernel.source(target)
    assert re.match(r"// Left out as host code: `main` \(.*\)\n", text)
    assert "2 * x[threadIdx.x]" in text
    assert "<<<" not in text
    assert "typedef unsigned int uint" in text


def test_the_source_of_a_template_asks_for_dtypes():
    kernel = jge.cuda_kernel(
        "template <typename T>\n" + KERNEL.replace("float", "T"),
        "k<{x}>",
        out_shape=lambda x: x,
        grid=1,
        block=4,
    )
    assert "k<double>" in kernel.source("cpu", np.float64)
    with pytest.raises(TypeError, match="inputs"):
        kernel.source("cpu")


# ---------------------------------------------------------------------- the text itself


def left(text):
    found = leave_out_host_code(text, read_macros([text]))
    assert found.text.count("\n") == text.count("\n")
    return found


@pytest.mark.parametrize(
    "text",
    [
        "__device__ int f(int a) { return a; }",
        "static __forceinline__ __device__ float g() { return 1; }",
        "#define HD __host__ __device__\nHD inline int f() { return 1; }",
        "constexpr int f(int a) { return a + 1; }",
        "auto f(int a) { return a; }",
        "struct A { int a; int twice() const { return 2 * a; } A() : a(1) {} };",
        "const float table[] = {1, 2};",
        "__constant__ float weights[3] = {1, 2, 3};",
        "__device__ int counter = 0;",
        "template <typename T> struct S { T x; __device__ T get() { return x; } };",
        "enum Mode { A, B };\ntypedef struct { int n; } Args;",
        "MY_KERNEL(k, float)",
    ],
)
def test_device_code_types_and_constants_stay(text):
    assert left(text).text == text


def test_bodies_go_and_declarations_stay():
    found = left("int f(int a) {\n  return g<<<1, 1>>>(a);\n}\nint h;\n")
    assert [line.rstrip() for line in found.text.split("\n")] == [
        "int f(int a) ;",
        "",
        "",
        "int h;",
        "",
    ]
    assert [(part.name, part.line) for part in found.parts] == [("f", 1)]


def test_what_cannot_be_told_is_kept_with_the_reason():
    found = left("void f(int a) {\n#if X\n  g<<<1, 1>>>(a);\n}\n#else\n}\n#endif\n")
    assert all(part.kept for part in found.parts)

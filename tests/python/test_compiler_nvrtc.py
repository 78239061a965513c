"""test_compiler_nvrtc.py: CUDA source compiled for GPUs; needs NVRTC, but no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from jax_graphenc.base.errors import CompilerNotFoundError, KernelCompileError
from jax_graphenc.compiler import nvrtc, nvrtc_library
from jax_graphenc.compiler.diagnostics import UnknownKernelError
from jax_graphenc.compiler.ptx import parameter_sizes
from jax_graphenc.compiler.source import Image, Source

try:
    nvrtc_library.version()
except CompilerNotFoundError as error:
    pytest.skip(str(error), allow_module_level=True)

SAXPY = """extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""


def compile_(text: str, *names: str, target: str = "sm_90a", **more: object) -> Image:
    source = Source(text, "my kernel.cu", line=100, **more)  # type: ignore[arg-type]
    return nvrtc.compile_image(source, names, target)


def test_saxpy() -> None:
    image = compile_(SAXPY, "saxpy")
    assert image.data.startswith(b"\x7fELF")
    (entry,) = image.entries
    assert (entry.expression, entry.symbol) == ("saxpy", "saxpy")
    assert entry.types == ("float const*", "float*", "float", "int")
    assert entry.sizes == (8, 8, 4, 4)
    assert b"my kernel.cu" in image.data  # Line numbers for profilers.


def test_types_behind_aliases_and_templates() -> None:
    text = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    #include <cstdint>
    using cvec = const float4*;
    struct P { char c; double d; };
    template <typename T, int N> __global__ void t(const T* x, T* y) { y[0] = x[N]; }
    namespace ns { __global__ void many(cvec v, P p, dim3 d, __half h, const __nv_bfloat16* b,
                                        bool f, uint64_t u) {} }
    extern "C" __global__ void none() {}
    """
    names = ("t<float, 2>", "ns::many", "none")
    entries = compile_(text, *names).entries
    assert [e.expression for e in entries] == list(names)
    assert entries[0].symbol.startswith("_Z1tIfLi2EE")
    assert entries[0].types == ("float const*", "float*")
    assert entries[1].types == (
        *("float4 const*", "P", "dim3", "__half", "__nv_bfloat16 const*", "bool"),
        "unsigned long long",
    )
    assert entries[1].sizes == (8, 16, 12, 2, 8, 1, 8)
    assert (entries[2].types, entries[2].sizes) == ((), ())


def test_headers_without_a_toolkit() -> None:
    headers = (
        *("cassert", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstdio", "cstdlib"),
        *("cstring", "limits", "assert.h", "float.h", "limits.h", "math.h", "stddef.h", "stdint.h"),
        *("stdio.h", "stdlib.h", "string.h", "cuda_runtime.h", "cuda_runtime_api.h"),
        *("device_launch_parameters.h", "cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "cuComplex.h"),
        "math_constants.h",
    )
    text = "".join(f"#include <{header}>\n" for header in headers)
    text += """
    static_assert(sizeof(int64_t) == 8 && sizeof(std::uint16_t) == 2 && INT64_MAX > 0, "");
    static_assert(sizeof(std::sqrt(1.0f)) == 4 && sizeof(std::sqrt(1.0)) == 8, "");
    static_assert(std::numeric_limits<int>::max() == INT_MAX, "");
    static_assert(std::numeric_limits<unsigned char>::digits == CHAR_BIT, "");
    static_assert(std::numeric_limits<float>::epsilon() == FLT_EPSILON, "");
    extern "C" __global__ void k(const float* x, float* y) {
      assert(x[0] > 0); printf("%f", x[0]); std::memcpy(y, x, sizeof(float));
      y[0] = std::abs(x[0]) + std::pow(x[0], 2.0f) + std::fmin(x[0], 1.0f) + float(M_PI)
          + std::numeric_limits<float>::infinity() + (std::isnan(x[0]) ? NAN : INFINITY);
    }
    """
    compile_(text, "k")


def test_compile_error_shows_user_line() -> None:
    with pytest.raises(KernelCompileError) as caught:
        compile_(SAXPY.replace("y[i] +=", "z[i] +="), "saxpy")
    message = str(caught.value)
    assert '"saxpy" in my kernel.cu does not compile for sm_90a (NVRTC ' in message
    assert 'my kernel.cu:102: error: identifier "z" is undefined' in message
    assert message.count("z[i] += a * x[i];") == 1  # NVRTC shows the line itself.
    assert "^" in message
    assert "identifier" in caught.value.log


@pytest.mark.parametrize("name", ["nothing", "scale<floaty>", "scale", "over", "ns::saxpy"])
def test_unknown_kernel(name: str) -> None:
    text = SAXPY + (
        "template <class T> __global__ void scale(T* x) { x[0] = 2; }\nnamespace ns {}\n"
        "__global__ void over(int* x) {}\n__global__ void over(float* x) {}\n"
    )
    with pytest.raises(UnknownKernelError, match="does not name one kernel") as caught:
        compile_(text, "saxpy", name)
    assert str(caught.value).startswith(f'"{name}"')


def test_an_instantiation_is_traced_to_the_users_lines(tmp_path: Path) -> None:
    twice = "template <class T> __device__ T twice(T x) { return x.nope; }\n"
    (tmp_path / "h.h").write_text(twice)
    use = 'extern "C" __global__ void k(float* y) { y[0] = twice(y[0]); }\n'
    with pytest.raises(KernelCompileError, match=r"instantiation of .* at my kernel\.cu:101\n"):
        compile_(twice + use, "k")
    with pytest.raises(KernelCompileError, match=r"h\.h:1: .*\n(?:.*\n)*.* at my kernel\.cu:101\n"):
        compile_('#include "h.h"\n' + use, "k", folder=tmp_path)


def test_unknown_architecture() -> None:
    with pytest.raises(KernelCompileError, match=r"for sm_1 \(NVRTC.*\n.*gpu-architecture"):
        compile_(SAXPY, "saxpy", target="sm_1")


def test_architecture_is_a_real_one() -> None:
    text = 'extern "C" __global__ void k() { asm volatile("setmaxnreg.inc.sync.aligned.u32 64;"); }'
    compile_(text, "k", target="sm_90a")
    with pytest.raises(KernelCompileError):
        compile_(text, "k", target="sm_90")


def test_defines_options_and_includes(tmp_path: Path) -> None:
    (tmp_path / "beside.h").write_text("#define BESIDE 1\n")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "further.h").write_text("#define FURTHER 2\n")
    path = tmp_path / "kernel.cu"
    text = (
        '#include "beside.h"\n#include <further.h>\n'
        'static_assert(BESIDE + FURTHER + A + B == 1 + 2 + 30 + 400, "");\n'
        'static_assert(__cplusplus > 201703L, "");\n' + SAXPY
    )
    path.write_text(text)
    options = (f"-I{tmp_path}/extra", "-DB=400", "--std=c++20")
    source = Source(text, str(path), 1, (("A", "30"),), options, folder=tmp_path)
    nvrtc.compile_image(source, ["saxpy"], "sm_90a")


def test_users_macros_stay_out_of_our_headers() -> None:
    defines = tuple((name, "3") for name in ("T", "F", "N", "x", "value", "name"))
    compile_("#include <limits>\n#include <cmath>\n" + TEXT_WITHOUT_NAMES, "k", defines=defines)


TEXT_WITHOUT_NAMES = 'extern "C" __global__ void k(float* p) { p[0] = T + N; }'


def test_headers_before_the_text() -> None:
    text = "template <class T> __global__ void t(T* y) { y[0] = T(1.0f); }"
    image = compile_(text, "t<__half>", headers=("cuda_fp16.h",))
    assert image.entries[0].types == ("__half*",)
    with pytest.raises(KernelCompileError, match=r"kernel\.cu:100:"):
        compile_(text.replace("y[0]", "z[0]"), "t<__half>", headers=("cuda_fp16.h",))


def test_warnings_are_kept() -> None:
    text = 'extern "C" __global__ void k(float* y) { int unused; y[0] = 1; }'
    assert 'my kernel.cu:100: warning #177-D: variable "unused"' in compile_(text, "k").log


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def no_cuda(name: str, *args: object, **more: object) -> object:
        if name.startswith("cuda"):
            raise ImportError(f"no {name}")
        return real(name, *args, **more)  # type: ignore[arg-type]

    nvrtc_library.load.cache_clear()
    monkeypatch.setattr(builtins, "__import__", no_cuda)
    with pytest.raises(CompilerNotFoundError, match='pip install "nvidia-cuda-nvrtc>=13,<14"'):
        compile_(SAXPY, "saxpy")
    monkeypatch.undo()
    compile_(SAXPY, "saxpy")


def test_parameter_sizes_of_ptx() -> None:
    ptx = """
.visible .entry other(
\t.param .u8 other_param_0
)
.visible .entry k(
\t.param .u64 .ptr .align 1 k_param_0,
\t.param .align 8 .b8 k_param_1[24],
\t.param .f64 k_param_2,
\t.param .u16 k_param_3
)
{
}
.visible .entry none()
{
}
"""
    assert parameter_sizes(ptx, "k") == (8, 24, 8, 2)
    assert parameter_sizes(ptx, "none") == ()
    assert parameter_sizes(ptx, "absent") is None

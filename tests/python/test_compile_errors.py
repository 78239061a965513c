"""Errors that speak of the user's own lines, and paths of any name."""

import pytest

from jax_graphenc.base.errors import CompilerNotFoundError, KernelCompileError
from jax_graphenc.compiler import gpu, nvcc, nvrtc_library
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Source


def has_nvrtc():
    try:
        nvrtc_library.version()
    except CompilerNotFoundError:
        return False
    return True


TARGETS = ["cpu", *(["sm_90"] if has_nvrtc() else [])]
needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="no NVRTC here")
needs_nvcc = pytest.mark.skipif(nvcc.find() is None, reason="no nvcc here")


def refused(text, name, target, **more):
    source = Source("\n" + text, "solver.cu", line=41, **more)
    with pytest.raises(KernelCompileError) as caught:
        compile_source(source, [name], target, None)
    return str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('extern "C" __global__ int f(float* y) { return 0; }', "f"),
        ("__global__ float* f(float* y) { return y; }", "f"),
        ("template <typename T> __global__ T f(T* y) { return y[0]; }", "f<float>"),
        ("namespace a { using R = int; __global__ R f(float* y) { return 1; } }", "a::f"),
        ("__global__ auto f(float* y) -> int { return 1; }", "f"),
    ],
)
def test_a_kernel_returns_nothing(text, name, target):
    message = refused(text, name, target)
    assert "must have a void return type" in message
    assert message.splitlines()[1].startswith("solver.cu:42: error: ")
    assert "jge_" not in message
    assert "kernel.cu" not in message
    assert len(message.splitlines()) < 8


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__global__ void f(const float& x, float* y) {}", "cannot take a reference"),
        (
            "struct S { S(const S&); int i; };\n__global__ void f(S s, float* y) {}",
            "must be trivially copyable",
        ),
    ],
)
def test_what_our_headers_assert_is_told_at_the_kernel(text, why):
    message = refused(text, "f", "cpu")
    line = 42 + text.count("\n")
    assert f"solver.cu:{line}: error: f: a kernel" in message
    assert why in message
    assert "jge_" not in message


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ['a"b', "a'b", "a\\b", "a b", "é", "a%b", "a$b"])
def test_any_path_will_do(name, target, tmp_path):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "h.h").write_text("#define N 1\n")
    text = '#include "h.h"\nextern "C" __global__ void f(float* y) { y[0] = N; }\n'
    path = str(folder / f"{name}.cu")
    source = Source(text, path, folder=folder, is_file=True, options=(f"-I{folder}",))
    assert compile_source(source, ["f"], target, None).data
    with pytest.raises(KernelCompileError) as caught:
        compile_source(Source(text + "#error no", path, folder=folder), ["f"], target, None)
    assert f"{path}:3:" in str(caught.value)
    if target != "cpu" and nvcc.find() is not None:
        image = nvcc.compile_image(source, ["f"], target)
        assert image.files == (str(folder / "h.h"),)
        (folder / "h.h").write_text("#error no")
        with pytest.raises(KernelCompileError) as caught:
            nvcc.compile_image(source, ["f"], target)
        assert f"{folder}/h.h:1:" in str(caught.value)


@needs_nvrtc
@needs_nvcc
@pytest.mark.parametrize(
    "option", ["-default-device", "--device-as-default-execution-space", "--no-such-option"]
)
def test_what_nvcc_does_not_know(option):
    text = '#include <cub/cub.cuh>\nextern "C" __global__ void f(float* y) { y[0] = 1; }\n'
    message = refused(text, "f", "sm_90", options=(option,))
    if option == "--no-such-option":
        assert "unrecognized option --no-such-option" in message
        return
    # From NVRTC 13.3 on, the log has the line of the include, and the header's own words.
    where = "solver.cu:42: " if nvrtc_library.version() >= (13, 3) else ""
    assert message.startswith(f"{where}NVRTC cannot compile what this includes, and nvcc")
    assert f"refuses: Unknown option '{option}'" in message
    assert "#error directive" in message or not where


@needs_nvrtc
@pytest.mark.parametrize("header", ["float.h", "cfloat", "limits.h", "math.h", "stdint.h"])
def test_headers_of_c_go_with_cooperative_groups(header, monkeypatch):
    monkeypatch.setattr(nvcc, "find", lambda: None)
    groups = "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\n"
    kernel = """namespace cg = cooperative_groups;
__global__ void f(float* y) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  y[0] = cg::reduce(tile, y[threadIdx.x], cg::plus<float>());
}
"""
    for first, second in ((f"#include <{header}>\n", groups), (groups, f"#include <{header}>\n")):
        source = Source(first + second + kernel, "f.cu")
        assert gpu.compile_image(source, ["f"], "sm_90").data

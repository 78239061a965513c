"""Headers of CUDA's without a toolkit, and nvcc where NVRTC cannot; needs NVRTC, but no GPU."""

import re
from pathlib import Path

import pytest

import jax_graphenc as jge
from jax_graphenc.base.errors import CompilerNotFoundError, KernelCompileError
from jax_graphenc.compiler import cuda_headers, gpu, nvcc, nvrtc
from jax_graphenc.compiler.diagnostics import UnknownKernelError
from jax_graphenc.compiler.nvrtc_library import version
from jax_graphenc.compiler.source import Source

try:
    version()
except CompilerNotFoundError as error:
    pytest.skip(str(error), allow_module_level=True)

needs_nvcc = pytest.mark.skipif(nvcc.find() is None, reason="no nvcc here")
needs_bundle = pytest.mark.skipif(version() < (13, 3), reason="NVRTC without its headers")

SUM = """#include <cooperative_groups.h>
#include <cuda/std/array>
#include <cub/block/block_reduce.cuh>
template <typename T> __global__ void sum(const T* x, T* out) {
  using Reduce = cub::BlockReduce<T, 128>;
  __shared__ typename Reduce::TempStorage storage;
  cuda::std::array<T, 1> total{Reduce(storage).Sum(x[threadIdx.x])};
  if (cooperative_groups::this_thread_block().thread_rank() == 0) out[0] = total[0];
}
"""
ALL_OF_CUB = SUM.replace("cub/block/block_reduce.cuh", "cub/cub.cuh")
PLAIN = """#include <cuda_fp16.h>
struct P { char c; double d; };
template <typename T, int N> __global__ void t(const T* x, T* y) { y[0] = x[N]; }
namespace ns { __global__ void many(const float4* v, P p, __half h) {} }
extern "C" __global__ void none() {}
"""
NAMES = ("t<float, 2>", "ns::many", "none")


@pytest.fixture(autouse=True)
def forget():
    yield
    cuda_headers._bundled_headers.cache_clear()
    cuda_headers.toolkit_headers.cache_clear()


@pytest.fixture
def no_nvcc(monkeypatch):
    monkeypatch.setattr(nvcc, "find", lambda: None)


@pytest.fixture
def no_toolkit(monkeypatch):
    monkeypatch.setattr(cuda_headers, "_pathfinder_headers", lambda _: [])
    cuda_headers.toolkit_headers.cache_clear()


def source(text, **more):
    return Source(text, "my kernel.cu", line=100, **more)


# ---------------------------------------------------------------------- headers


@needs_bundle
@pytest.mark.usefixtures("no_nvcc", "no_toolkit")
def test_headers_of_cccl_come_with_nvrtc(tmp_path):
    folder = tmp_path / "cache"
    image = gpu.compile_image(source(SUM), ["sum<float>"], "sm_90a", folder)
    assert image.entries[0].types == ("float const*", "float*")
    major, minor = version()
    (unpacked,) = folder.iterdir()
    assert unpacked.name == f"nvrtc-{major}.{minor}-headers"
    assert unpacked.stat().st_mode & 0o077 == 0
    # Once: another process finds them.
    before = (unpacked / "cccl" / "cub" / "version.cuh").stat().st_mtime_ns
    cuda_headers._bundled_headers.cache_clear()
    assert gpu.compile_image(source(SUM), ["sum<float>"], "sm_90a", folder).data == image.data
    assert (unpacked / "cccl" / "cub" / "version.cuh").stat().st_mtime_ns == before


@needs_bundle
@pytest.mark.usefixtures("no_nvcc")
@pytest.mark.slow
def test_no_header_is_looked_for_outside_of_packages(tmp_path, monkeypatch):
    """A block reduction of cub, on a machine with a toolkit that would not compile."""
    toolkit = tmp_path / "toolkit"
    for header in ("cuda_fp16.h", "cuda_runtime.h", "cub/block/block_reduce.cuh"):
        path = toolkit / "include" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#error the toolkit was asked\n")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(variable, str(toolkit))
    monkeypatch.setattr(cuda_headers, "_pathfinder_headers", lambda _: [toolkit / "include"])
    cuda_headers.toolkit_headers.cache_clear()
    options = []

    def recorded(*arguments, real=nvrtc._options):
        options.extend(real(*arguments))
        return real(*arguments)

    monkeypatch.setattr(nvrtc, "_options", recorded)
    cache = tmp_path / "cache"
    image = gpu.compile_image(source(SUM), ["sum<float>"], "sm_90a", cache)
    assert image.data.startswith(b"\x7fELF")
    folders = [re.fullmatch(r"(?:--include-path=|-I)(.*)", option) for option in options]
    found = [Path(match[1]).resolve() for match in folders if match]
    # What NVRTC brings along is unpacked into our own cache.
    packages = [root.parent.resolve() for root in cuda_headers._wheels()]
    places = [*packages, Path(jge.__file__).parent.resolve(), cache.resolve()]
    assert [f for f in found if not any(f.is_relative_to(place) for place in places)] == []
    assert cache.resolve() in [f.parent for f in found]


@needs_bundle
@pytest.mark.usefixtures("no_nvcc", "no_toolkit")
@pytest.mark.parametrize("trusted", [True, False])
def test_headers_are_unpacked_only_where_no_other_user_can_write(tmp_path, trusted):
    folder = tmp_path / "cache"
    folder.mkdir()
    if not trusted:
        folder.chmod(0o777)
        with pytest.warns(UserWarning, match="can be written by others"):
            found = cuda_headers.more_headers(folder)
    else:
        found = cuda_headers.more_headers(folder)
    assert found[0].is_dir()
    assert found[0].is_relative_to(tmp_path) == trusted
    assert cuda_headers.more_headers(None)[0].is_dir()


@pytest.mark.usefixtures("no_nvcc")
def test_else_headers_of_cccl_come_from_a_toolkit(tmp_path, monkeypatch):
    (tmp_path / "cub").mkdir()
    (tmp_path / "cub" / "mine.cuh").write_text("#define MINE 1\n")
    monkeypatch.setattr(cuda_headers, "_bundled_headers", lambda _: ())
    real = cuda_headers._pathfinder_headers
    places = {"cccl": [tmp_path]}
    monkeypatch.setattr(
        cuda_headers, "_pathfinder_headers", lambda name: places.get(name) or real(name)
    )
    text = '#include <cub/mine.cuh>\nextern "C" __global__ void k(int* x) { x[0] = MINE; }\n'
    gpu.compile_image(source(text), ["k"], "sm_90a")
    places["cccl"] = [tmp_path / "nothing"]
    with pytest.raises(KernelCompileError, match=r"cub/mine\.cuh"):
        gpu.compile_image(source(text), ["k"], "sm_90a")


@pytest.mark.usefixtures("no_nvcc")
def test_all_of_cub_says_what_to_include():
    with pytest.raises(
        KernelCompileError, match=r"include what the kernel uses.*block_reduce\.cuh"
    ):
        gpu.compile_image(source(ALL_OF_CUB), ["sum<float>"], "sm_90a")


# ---------------------------------------------------------------------- nvcc


@needs_nvcc
def test_nvcc_compiles_what_nvrtc_cannot():
    image = gpu.compile_image(source(ALL_OF_CUB), ["sum<float>"], "sm_90a")
    assert image.data.startswith(b"\x7fELF")
    (entry,) = image.entries
    assert entry.types == ("float const*", "float*")
    assert entry.symbol.encode() in image.data
    assert b"my kernel.cu" in image.data  # line numbers for profilers
    text = "#include <vector>\n" + PLAIN
    assert gpu.compile_image(source(text), NAMES, "compute_90").data.startswith(b"//")


@needs_nvcc
@pytest.mark.parametrize("target", ["sm_90a", "compute_90"])
def test_nvcc_and_nvrtc_agree(target):
    theirs = nvcc.compile_image(source(PLAIN), NAMES, target)
    assert theirs.entries == nvrtc.compile_image(source(PLAIN), NAMES, target).entries
    assert nvcc.compile_image(source(PLAIN), NAMES, target).data == theirs.data


@needs_nvcc
def test_nvcc_takes_macros_folders_and_options(tmp_path):
    for folder, name in (("a", "one"), ("b", "two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.h").write_text(f"#define {name.upper()} 1\n")
    text = (
        '#include "one.h"\n#include <two.h>\nstatic_assert(ONE + TWO + A + B == 9, "");\n' + PLAIN
    )
    options = (f"-I{tmp_path}/b", "-DB=4", "--use_fast_math", "--std=c++20")
    given = source(text, folder=tmp_path / "a", options=options, defines=(("A", "3"),))
    nvcc.compile_image(given, NAMES, "sm_90a")


@needs_nvcc
def test_errors_of_nvcc_show_the_users_line():
    with pytest.raises(
        KernelCompileError, match=r"\(nvcc \d+\.\d+\):\nmy kernel\.cu:102: error: ident"
    ):
        nvcc.compile_image(source(PLAIN.replace("x[N]", "z[N]")), NAMES, "sm_90a")
    with pytest.raises(
        UnknownKernelError, match=r'^"nothing" does not name one kernel in my kernel\.cu'
    ):
        nvcc.compile_image(source(PLAIN), ("none", "nothing"), "sm_90a")


def test_a_users_mistake_does_not_ask_nvcc(monkeypatch):
    monkeypatch.setattr(nvcc, "find", lambda: Path("/bin/false"))
    with pytest.raises(KernelCompileError, match="NVRTC"):
        gpu.compile_image(source(PLAIN.replace("x[N]", "z[N]")), NAMES, "sm_90a")
    with pytest.raises(KernelCompileError, match=r"does not compile for sm_90a \(nvcc\)"):
        gpu.compile_image(source("#include <nothing>\n" + PLAIN), NAMES, "sm_90a")


@needs_nvcc
def test_nvcc_alone_is_enough(monkeypatch):
    def missing():
        raise CompilerNotFoundError("no NVRTC")

    monkeypatch.setattr(nvrtc, "load", missing)
    monkeypatch.setattr(nvrtc, "version", missing)
    nvrtc.identity.cache_clear()
    assert gpu.identity().startswith("no nvrtc; nvcc ")
    assert gpu.compile_image(source(PLAIN), NAMES, "sm_90a").entries[2].symbol == "none"
    monkeypatch.setattr(nvcc, "find", lambda: None)
    for call in (gpu.identity, lambda: gpu.compile_image(source(PLAIN), NAMES, "sm_90a")):
        with pytest.raises(CompilerNotFoundError, match="no NVRTC"):
            call()


def test_the_key_knows_every_compiler(monkeypatch):
    assert re.search(r"nvrtc \d+\.\d+; .*CUDA_VERSION \d+; nvcc|no nvcc", gpu.identity())
    before = gpu.identity()
    monkeypatch.setattr(nvcc, "find", lambda: Path(__file__))
    assert gpu.identity() != before


@needs_nvcc
@pytest.mark.slow
def test_a_kernel_that_only_nvcc_compiles_is_lowered(tmp_path):
    import jax
    import jax.numpy as jnp

    kernel = jge.cuda_kernel(
        ALL_OF_CUB,
        "sum<{x}>",
        params={"x": "const float*", "out": "float*"},
        out_shape=jax.ShapeDtypeStruct((1,), jnp.float32),
        grid=1,
        block=128,
    )
    with jge.options(cuda_targets="sm_90a", cache_dir=tmp_path / "cache"):
        exported = jax.export.export(
            jax.jit(kernel), platforms=["cuda"], disabled_checks=jge.export_checks()
        )(jnp.ones(128))
    assert re.search(r"jax_graphenc\.\w*program\.v\d", exported.mlir_module())

"""Saved functions: exported for GPUs and CPUs, run in other processes, kept by JAX's cache."""

import os
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from exported import programs

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.base.options import current
from jax_graphenc.compiler import fatbin, nvrtc_library

PRELUDE = r"""
import jax, jax.export, jax.numpy as jnp
import jax_graphenc as jge
TWICE = '''extern "C" __global__ void twice(const float* x, float* out) {
  out[threadIdx.x] = 2 * x[threadIdx.x];
}'''
twice = jge.cuda_kernel(TWICE, "twice", out_shape=lambda x: x, grid=1, block=lambda x: x.size)
x = jnp.arange(8.0)
four = jge.graph(lambda x: twice(twice(x)), name="four")
"""
made_here: dict = {}
exec(PRELUDE, made_here)
TWICE, twice, four = (made_here[name] for name in ("TWICE", "twice", "four"))
FUNCTIONS = [(twice, 2), (four, 4)]


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def export(function, platforms):
    made = jax.export.export(
        jax.jit(function), platforms=platforms, disabled_checks=jge.export_checks()
    )
    return made(jnp.arange(8.0))


def needs(load):
    """Skips where a compiler is not installed."""
    try:
        load()
    except CompilerNotFoundError as error:
        return pytest.mark.skipif(True, reason=str(error))
    return pytest.mark.skipif(False, reason="")


needs_nvrtc = needs(nvrtc_library.version)
needs_fatbin = needs(fatbin._load)


@needs_nvrtc
@pytest.mark.parametrize(("function", "factor"), FUNCTIONS)
@pytest.mark.parametrize(
    ("target", "inside"),
    [
        ("sm_80", [b"\x7fELF", b"sm_80"]),
        ("sm_90a", [b"\x7fELF", b"sm_90a"]),
        ("compute_80", [b".version ", b".target sm_80"]),
        pytest.param(
            "sm_90a,sm_80,compute_90",
            [b"\x50\xed\x55\xba", b"sm_80", b"sm_90a", b".target sm_90"],
            marks=needs_fatbin,
        ),
    ],
)
def test_exported_for_gpus_that_are_not_here(function, factor, target, inside):
    with jge.options(cuda_targets=target):
        saved = export(function, ["cuda"]).serialize()
        again = export(function, ["cuda"]).serialize()
    assert saved == again
    loaded = jax.export.deserialize(bytearray(saved))
    assert loaded.platforms == ("cuda",)
    (program,) = programs(loaded)
    nodes = _core.describe_program(program)["nodes"]
    assert len(nodes) == factor // 2
    assert all(part in program for part in inside)


def saved(tmp_path, exported):
    """Files of exported functions, by name, for another process."""
    paths = {name: str(tmp_path / name) for name in exported}
    for name, function in exported.items():
        (tmp_path / name).write_bytes(function.serialize())
    return paths


LOAD = """
import jax, jax.export, jax_graphenc
loaded = {name: jax.export.deserialize(bytearray(open(path, "rb").read()))
          for name, path in PATHS.items()}
"""


@needs_nvrtc
def test_another_process_without_a_gpu_reads_it_and_refuses_to_run_it(tmp_path):
    with jge.options(cuda_targets="sm_90a"):
        paths = saved(tmp_path, {"twice": export(twice, ["cuda"]), "four": export(four, ["cuda"])})
    out = run(
        f"PATHS = {paths}" + LOAD + "for saved in loaded.values():\n"
        "    print(saved.platforms, saved.mlir_module().count('@jax_graphenc.program.v1'))\n"
        "    try: saved.call(jax.numpy.arange(8.0))\n"
        "    except ValueError as error: print(str(error).splitlines()[0])\n"
    )
    lines = out.splitlines()
    assert len(lines) == 4
    for first, refused in zip(lines[::2], lines[1::2], strict=True):
        assert first == "('cuda',) 1"
        assert "cuda" in refused
        assert "cpu" in refused


def test_another_process_runs_what_was_exported_for_the_cpu_and_for_both(tmp_path):
    platforms = {"cpu": ["cpu"], "both": ["cpu", "cuda"]}
    if needs_nvrtc.args[0]:
        del platforms["both"]
    exported = {}
    with jge.options(cuda_targets="sm_90a"):
        for kind, names in platforms.items():
            for function, factor in FUNCTIONS:
                exported[f"{factor} {kind}"] = export(function, names)
                assert len(programs(exported[f"{factor} {kind}"])) == len(names)
    paths = saved(tmp_path, exported)
    out = run(
        f"PATHS = {paths}" + LOAD + "for name, saved in loaded.items():\n"
        "    print(name, saved.platforms, list(map(float, saved.call(jax.numpy.arange(8.0)))))\n"
    )
    assert out.splitlines() == [
        f"{factor} {kind} {tuple(names)} {[factor * float(i) for i in range(8)]}"
        for kind, names in platforms.items()
        for _, factor in FUNCTIONS
    ]


@needs_nvrtc
def test_a_change_of_targets_is_seen_by_what_was_lowered_before():
    for target in ("sm_80", "sm_90a", "sm_80"):
        with jge.options(cuda_targets=[target]):
            (program,) = programs(export(twice, ["cuda"]))
            assert (b"sm_90a" in program) == (target == "sm_90a")


@needs_nvrtc
def test_the_environment_names_targets():
    out = run(
        PRELUDE + "make = jax.export.export(jax.jit(four), platforms=['cuda'],\n"
        "    disabled_checks=jge.export_checks())\n"
        "print('sm_75' in make(x).mlir_module())",
        JAX_GRAPHENC_CUDA_TARGETS="sm_75",
    )
    assert out.split() == ["True"]


def test_targets_are_checked():
    with jge.options(cuda_targets="sm_80, sm_90a,sm_80"):
        assert current().cuda_targets == ("sm_80", "sm_90a")
    assert current().cuda_targets == ()
    for wrong in ("sm80", "gfx90a", ["sm_80", 90], 90, "lto_80"):
        with pytest.raises(
            ValueError, match=r"cuda_targets=.*a list of architectures such as sm_90a"
        ):
            jge.options(cuda_targets=wrong)


@needs_nvrtc
def test_an_unknown_architecture_is_the_compilers_to_refuse():
    with (
        jge.options(cuda_targets="sm_30"),
        pytest.raises(jge.KernelCompileError, match="sm_30 "),
    ):
        export(twice, ["cuda"])


def test_without_targets_the_error_says_what_to_set():
    out = run(
        PRELUDE + "def attempt(function):\n"
        "    made = jax.export.export(jax.jit(function), platforms=['cuda'],\n"
        "        disabled_checks=jge.export_checks())\n"
        "    try: made(x)\n"
        "    except RuntimeError as error: print(str(error).splitlines()[0])\n"
        "attempt(twice); attempt(four)\n"
    )
    kernel, region = out.splitlines()
    hint = "JAX has no GPU here to compile for; name what the kernel will run on, as in "
    hint += "jge.options(cuda_targets='sm_90a')"
    assert kernel.startswith(f"kernel 'twice' cannot be lowered for CUDA: {hint}")
    assert region.startswith(f"region 'four' cannot be lowered for CUDA: {hint}")


def launch(**more):
    kernel = jge.cuda_kernel(
        TWICE,
        "twice",
        out_shape=lambda x: x,
        grid=4,
        block=8,
        **more,
    )
    return export(kernel, ["cuda"])


@needs_nvrtc
def test_what_an_architecture_cannot_launch_is_refused():
    with jge.options(cuda_targets="sm_80"):
        launch(shared_mem=163 * 1024)
        with pytest.raises(jge.LaunchLimitError, match=r"166913 bytes; the limit on sm_80 is"):
            launch(shared_mem=163 * 1024 + 1)
        with pytest.raises(jge.LaunchLimitError, match=r"clusters of 4 .* on sm_80 is 1"):
            launch(cluster=4)
    with jge.options(cuda_targets="sm_90"):
        launch(shared_mem=227 * 1024, cluster=4)
    # PTX runs on devices to come.
    with jge.options(cuda_targets="compute_80"):
        launch(shared_mem=227 * 1024, cluster=4)


@needs_fatbin
@needs_nvrtc
def test_a_kernel_that_differs_between_architectures():
    kernel = jge.cuda_kernel(
        "#if __CUDA_ARCH__ >= 900\n#define T float\n#else\n#define T double\n#endif\n"
        "template <class X> __global__ void f(const T* x, X* y) {}",
        "f<float>",
        params={"x": "const float*"},
        out_shape=lambda x: x,
        grid=1,
        block=1,
    )
    with (
        jge.options(cuda_targets="sm_80,sm_90"),
        pytest.raises(TypeError, match=r"double const\*.* on sm_80 and .*float const\*.* on sm_90"),
    ):
        export(kernel, ["cuda"])


CACHE = (
    """
import jax.monitoring
events = []
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
"""
    + PRELUDE
    + """
jax.monitoring.register_event_listener(lambda name, **_: events.append(name.rpartition("/")[2]))
print(jax.jit(FUNCTION)(x)[3], jge.stats()["compiled"], jge.stats()["disk_hits"],
      events.count("cache_hits"), events.count("cache_misses"))
"""
)


@pytest.mark.parametrize(
    ("function", "result"), [("twice", 6.0), pytest.param("four", 12.0, marks=pytest.mark.slow)]
)
def test_a_second_process_starts_from_both_caches(function, result, tmp_path):
    """XLA's executable and the kernel, for a lone kernel and a region."""
    code = CACHE.replace("FUNCTION", function)
    caches = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla"),
        "JAX_GRAPHENC_CACHE_DIR": str(tmp_path / "kernels"),
    }
    assert np.allclose([float(v) for v in run(code, **caches).split()][:3], [result, 1, 0])
    value, compiled, kernels, hits, misses = run(code, **caches).split()
    assert (float(value), compiled, kernels, misses) == (result, "0", "1", "0")
    assert int(hits) >= 1

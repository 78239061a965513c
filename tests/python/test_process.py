"""What holds for the process: nothing opened at import, the same bytes every time, safe exits."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import jax_graphenc

PRELUDE = r"""
import jax, jax.numpy as jnp
import jax_graphenc as jge
kernel = jge.cuda_kernel(
    'extern "C" __global__ void twice(const float* x, float* out) '
    '{ out[threadIdx.x] = 2 * x[threadIdx.x]; }',
    "twice", out_shape=lambda x: x, grid=1, block=lambda x: x.size)
x = jnp.arange(8.0)
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# /proc/self/maps names every library that is loaded; where JAX has a GPU, it loads some itself.
SHOW_LIBRARIES = (
    "print(sorted({line.split()[-1] for line in open('/proc/self/maps')"
    " if 'libcuda.so' in line or 'libnvrtc' in line}))"
)


def test_importing_opens_no_driver():
    ours = run(
        f"import jax_graphenc; {SHOW_LIBRARIES}\nprint(jax_graphenc._core.cuda_driver_was_opened())"
    )
    assert ours == run(f"import jax; {SHOW_LIBRARIES}; print(False)")


def test_a_kernel_that_never_ends_is_ended_by_sigquit():
    # As the guide says: Ctrl-C waits for the kernel.
    code = """
import os, signal, threading, time
import numpy as np
import jax_graphenc as jge
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # a job in the background inherits that it is ignored
kernel = jge.cuda_kernel(
    'extern "C" __global__ void k(const float* x, float* y) '
    '{ volatile int i = 0; while (x[0] > 0) i = i + 1; y[0] = i; }',
    "k", out_shape=lambda x: x, grid=1, block=1)
np.asarray(kernel(np.zeros(1, np.float32)))
def end():
    for kind in (signal.SIGINT, signal.SIGQUIT):
        time.sleep(0.5)
        os.kill(os.getpid(), kind)
threading.Thread(target=end).start()
np.asarray(kernel(np.ones(1, np.float32)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
    assert done.returncode == -signal.SIGQUIT
    assert done.stdout == b""


def test_a_call_on_the_cpu_opens_no_driver():
    ours = run(
        PRELUDE + f"print(kernel(x)[3]); {SHOW_LIBRARIES}\n"
        "print(jge._core.cuda_driver_was_opened())",
        JAX_PLATFORMS="cpu",
    )
    alone = (
        f"import jax.numpy as jnp; print(2 * jnp.arange(8.0)[3]); {SHOW_LIBRARIES}; print(False)"
    )
    assert ours == run(alone, JAX_PLATFORMS="cpu")


def test_nothing_links_the_driver_or_the_runtime():
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("no readelf here")
    out = subprocess.run(
        [readelf, "-d", jax_graphenc._core.__file__], capture_output=True, text=True, check=True
    ).stdout
    assert "NEEDED" in out
    assert "libcuda" not in out
    assert "libnvrtc" not in out


def test_hlo_is_the_same_to_the_byte_in_two_processes(tmp_path):
    code = PRELUDE + "print(jax.jit(lambda x: kernel(kernel(x))).lower(x).as_text())"
    # Caches of their own, so that each compiles.
    first, second = (
        run(code, JAX_GRAPHENC_CACHE_DIR=str(tmp_path / name), TMPDIR=str(tmp_path))
        for name in ("a", "b")
    )
    assert "jax_graphenc.program.v1" in first
    assert first == second


def test_a_second_process_compiles_nothing(tmp_path):
    code = PRELUDE + "print(kernel(x)[3], jge.stats()['compiled'], jge.stats()['disk_hits'])"
    cache = str(tmp_path / "cache")
    assert run(code, JAX_GRAPHENC_CACHE_DIR=cache).split() == ["6.0", "1", "0"]
    assert run(code, JAX_GRAPHENC_CACHE_DIR=cache).split() == ["6.0", "0", "1"]
    assert run(code, JAX_GRAPHENC_CACHE_DIR="").split() == ["6.0", "1", "0"]


def test_what_cannot_be_exported_names_the_kernel():
    out = run(
        PRELUDE + "from jax import export\n"
        "def attempt(shape, **more):\n"
        "    checks = jge.export_checks()\n"
        "    try: export.export(jax.jit(kernel), disabled_checks=checks, **more)(shape)\n"
        "    except Exception as error: print(type(error).__name__, str(error).splitlines()[0])\n"
        "attempt(jax.ShapeDtypeStruct(export.symbolic_shape('b'), 'float32'))\n"
        "attempt(x, platforms=['cuda'])\n",
        JAX_PLATFORMS="cpu",
    )
    symbolic, cuda = out.splitlines()
    assert symbolic.startswith("TypeError kernel 'twice': input 'x' has the symbolic shape (b,): ")
    assert "launches and sizes are fixed; export for concrete shapes" in symbolic
    assert cuda.startswith("RuntimeError kernel 'twice' cannot be lowered for CUDA: ")
    assert "cuda_targets=" in cuda


def test_a_new_session_compiles_nothing(tmp_path):
    # Jupyter runs a cell as a file of another name in every session, which linecache knows.
    cache = str(tmp_path / "cache")
    cells = ("/tmp/1/cell.py", PRELUDE, "1"), ("/tmp/2/cell.py", "\n\n" + PRELUDE, "0")
    for name, text, compiled in cells:
        out = run(
            f"import linecache; name, text = {name!r}, {text!r}\n"
            "linecache.cache[name] = (len(text), None, text.splitlines(True), name)\n"
            "exec(compile(text, name, 'exec'), globals())\n"
            "print(kernel(x)[3], jge.stats()['compiled'])",
            JAX_GRAPHENC_CACHE_DIR=cache,
        )
        assert out.split() == ["6.0", compiled]


def test_a_temporary_folder_that_cannot_be_written_does_not_matter(tmp_path):
    out = run(
        PRELUDE + "print(kernel(x)[3])",
        JAX_GRAPHENC_CACHE_DIR="",
        JAX_PLATFORMS="cpu",  # on a GPU, XLA needs it itself
        TMPDIR="/proc",
    )
    assert out.split() == ["6.0"]


def test_exit_after_a_failed_run_and_with_encoders_of_other_threads():
    out = run(
        PRELUDE + "import threading\n"
        "picky = jge.cuda_kernel('#include <assert.h>\\nextern \"C\" __global__ void picky('\n"
        "    'const float* x, float* out) { assert(x[0] > 0); }', 'picky', grid=1, block=1,\n"
        "    out_shape=lambda x: x)\n"
        "threads = [threading.Thread(target=lambda: kernel(x)) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "try: picky(x).block_until_ready()\n"
        "except jax.errors.JaxRuntimeError: print('failed as it should')\n",
        JAX_PLATFORMS="cpu",
    )
    assert "failed as it should" in out


def test_device_info_anywhere():
    out = run("import jax_graphenc as jge; print(jge.device_info()); print(jge.graph_limits())")
    assert "graph limits" in out
    assert "GraphLimits(max_ops=" in out


def test_the_version_is_the_projects():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert jax_graphenc.__version__ == project["version"]

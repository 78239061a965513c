"""What the kernels of a file are: a module's list, and the command that shows and writes it."""

import importlib.util

import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.__main__ import main

SOURCE = """\
#include "taps.h"
namespace filters {
template <typename T, int K>
__global__ void scale(const T* x, T* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * TAPS * K * x[i];
}
}  // namespace filters
extern "C" __global__ void damp(float* u, float rate) { u[threadIdx.x] *= rate; }
__global__ void damp(double* u) { u[0] = 0; }
template <class Op> __global__ void apply(float* out) { out[0] = Op()(); }
__global__ void watch(const float* x) {}
// scale<double, 9><<<1, 1>>>(no, launch);
#ifdef LAUNCHERS
void run(const float* x, float* out, int n) {
  filters::scale<float, 3><<<(n + 255) / 256,
                             256>>>(x, out, 2, n);
}
#endif
"""


@pytest.fixture(autouse=True)
def whole_lines(monkeypatch):
    """The environment of the tests may set a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "taps.h").write_text("#define TAPS 5\n")
    path = tmp_path / "filters.cu"
    path.write_text(SOURCE)
    return path


def inspect(file, *arguments):
    return main(["inspect", str(file), "-I", str(file.parent / "headers"), *arguments])


def test_a_module_lists_its_kernels_with_their_signatures(file):
    kernels = jge.cuda_module(file).kernels
    assert list(kernels) == ["filters::scale", "damp", "damp(double* u)", "apply", "watch"]
    assert kernels["damp"].line == 9
    scale = kernels["filters::scale"]
    assert scale.template_parameters == ("T", "K")
    assert [p.role for p in scale.parameters] == ["in", "out", "value", "value"]


def test_a_module_prints_as_the_list_of_its_kernels(file):
    assert repr(jge.cuda_module(file)).splitlines()[1:3] == [
        "      4  filters::scale(const T* x, T* out, float a, int n)",
        "      9  damp(float* u, float rate)",
    ]


def test_it_shows_roles_launches_and_what_is_to_be_said(file, capsys):
    assert inspect(file, "--no-compile") == 0
    shown = capsys.readouterr().out
    assert f"{file}: 5 kernels\n" in shown
    scale = shown[shown.index("filters::scale") : shown.index("damp(float")].splitlines()
    assert scale == [
        "filters::scale(const T* x, T* out, float a, int n)  line 4",
        "  inputs        x",
        "  outputs       out",
        "  values        a, n",
        "  to be said    out_shape of out, or that it is updated in place (params), grid, block",
        "  launched      scale<float, 3><<<(n + 255) / 256, 256>>> (line 16)",
        "",
    ]
    assert "template arguments" in shown[shown.index("apply(") :]


def test_it_shows_where_each_kernel_compiles(tmp_path, capsys):
    file = tmp_path / "two.cu"
    file.write_text(
        'extern "C" __global__ void fine(float* x) { *x = 1; }\n'
        'extern "C" __global__ void gpu_only(float* x) { asm volatile("trap;"); }\n'
    )
    (tmp_path / "headers").mkdir()
    assert inspect(file) == 0
    shown = capsys.readouterr().out
    assert "compiles for  not cpu, sm_80, sm_90a" in shown
    assert f"cpu: {file}:2: inline PTX (asm) runs on NVIDIA GPUs only" in shown


def test_what_it_writes_runs_once_it_is_filled_in(file, capsys):
    written = file.parent / "made" / "filters.py"
    written.parent.mkdir()
    assert inspect(file, "--no-compile", "--write", str(written)) == 0
    assert "fill in each `...`" in capsys.readouterr().out
    bound = load(written)
    x = np.arange(300, dtype=np.float32)
    with pytest.raises(ValueError, match=r"'scale': out_shape=\.\.\. is to be filled in"):
        bound.scale(x, a=2.0, n=300)

    text = written.read_text()
    for hole, filling in (
        ("out_shape=...", "out_shape=lambda x, **_: x"),
        ("grid=...", "grid=2"),
        ("block=...", "block=256"),
        ("# values={'a': ..., 'n': ...}", "values={'n': lambda x: x.size}"),
    ):
        assert hole in text
        text = text.replace(hole, filling)
    written.write_text(text)
    np.testing.assert_array_equal(load(written).scale(x, a=2.0), 30 * x)


def load(path):
    """A module of its own: another one of that name may be loaded already."""
    spec = importlib.util.spec_from_file_location("bound", path)
    module = importlib.util.module_from_spec(spec)
    # Python would take the compiled file of an edit within the same second.
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def test_what_cannot_be_defined_is_written_with_the_reason(file):
    written = file.parent / "filters.py"
    assert inspect(file, "--no-compile", "--write", str(written)) == 0
    bound = load(written)
    assert not hasattr(bound, "damp")
    assert not hasattr(bound, "watch")
    text = written.read_text()
    assert "# Not as it stands: nothing is written" in text
    assert "`damp` is overloaded" in text


def test_it_writes_over_nothing(file, capsys):
    written = file.parent / "filters.py"
    written.write_text("mine")
    assert inspect(file, "--no-compile", "--write", str(written)) == 1
    assert written.read_text() == "mine"
    assert f"{written}: File exists; nothing was written" in capsys.readouterr().err


def test_a_file_without_kernels_is_told(tmp_path, capsys):
    file = tmp_path / "host.cu"
    file.write_text("int main() {}\n")
    assert main(["inspect", str(file)]) == 1
    assert "has no __global__ function" in capsys.readouterr().err


def test_a_macro_is_given_to_the_source(file, capsys):
    file.write_text("#ifdef WIDE\n" + SOURCE + "#endif\n")
    assert inspect(file, "--no-compile") == 1
    assert inspect(file, "--no-compile", "-D", "WIDE=2") == 0
    assert "5 kernels" in capsys.readouterr().out

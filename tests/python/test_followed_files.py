"""Kernels follow the files that their source stands in and includes."""

import copy
import os
import pickle

import jax
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.compiler import files, host
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Image, Source

pytestmark = pytest.mark.usefixtures("cpu")

KERNEL = """#include "factor.h"
extern "C" __global__ void times(const float* x, float* out) {
  out[threadIdx.x] = FACTOR * x[threadIdx.x];
}
"""
X = np.arange(8, dtype=np.float32)
LAUNCH = {"out_shape": lambda x, **_: x, "grid": 1, "block": lambda x, **_: x.size}


class Files:
    def __init__(self, folder):
        self.source, self.header = folder / "times.cu", folder / "factor.h"
        self.source.write_text(KERNEL)
        self.factor(2)

    def factor(self, value):
        self.header.write_text(f"#define FACTOR {value}\n")

    def change(self, old, new):
        text = self.source.read_text()
        assert old in text
        self.source.write_text(text.replace(old, new))


@pytest.fixture
def solver(tmp_path):
    return Files(tmp_path)


@pytest.fixture
def times(solver):
    return jge.cuda_kernel(solver.source, "times", **LAUNCH)


def test_calls_see_a_changed_file_and_what_is_traced_stays(solver, times):
    traced = jax.jit(lambda x: times(x))
    assert times(X)[1] == traced(X)[1] == 2
    solver.factor(3)
    assert times(X)[1] == 3
    solver.change("FACTOR *", "10 + FACTOR *")
    assert times(X)[1] == 13
    assert jax.jit(lambda x: times(x))(X)[1] == 13
    assert traced(X)[1] == 2
    assert traced(X[:4])[1] == 13
    solver.change("10 + FACTOR *", "FACTOR *")
    solver.factor(2)
    jge.reset_stats()
    assert times(X)[1] == 2
    assert jge.stats()["compiled"] == 0


def test_a_file_that_is_only_touched_is_the_same(solver, times):
    for path in (solver.source, solver.header):
        os.utime(path, ns=(1, 1))
        assert times.current() is times
    solver.factor(3)
    assert times.current() is times.current() is not times


def test_a_text_follows_what_it_includes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_TICK_NS", -(10**15))  # stamps alone tell
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    (far / "factor.h").write_text('#include "deep.h"\n')
    (far / "deep.h").write_text("#define FACTOR 2\n")
    text = KERNEL.replace('"factor.h"', "<factor.h>")
    kernel = jge.cuda_kernel(text, "times", include_dirs=[near, far], **LAUNCH)
    assert kernel(X)[1] == 2
    (far / "deep.h").write_text("#define FACTOR 4\n")
    assert kernel(X)[1] == 4
    # One that is found first now.
    (near / "factor.h").write_text("#define FACTOR 5\n")
    assert kernel(X)[1] == 5


def test_a_changed_signature_is_a_new_kernels(solver, times):
    times(X)
    solver.change("float* out) {\n", "float* out, float a) {\n")
    solver.change("FACTOR *", "a *")
    assert times(X, a=7)[1] == 7
    assert "float a" in repr(times)
    assert "float a" in times.__doc__
    assert list(times.__signature__.parameters) == ["x", "a"]
    with pytest.raises(TypeError, match="keyword a is missing"):
        times(X)
    solver.change("const float* x, float* out", "const float* out, const float* x")
    for _ in range(2):
        with pytest.raises(TypeError, match="has no output: every pointer is const"):
            times(X, a=7)
    solver.change("times(", "other(")
    with pytest.raises(ValueError, match="no __global__ function `times`; it has other"):
        times(X, a=7)
    solver.source.write_text(KERNEL.replace("FACTOR", "FACTOR nothing"))
    with pytest.raises(jge.KernelCompileError, match=r"times\.cu:3:\d+: error"):
        times(X)
    solver.source.write_text(KERNEL)
    assert times(X)[1] == 2


def test_what_belongs_to_the_kernel_stays(solver):
    kernel = jge.cuda_kernel(
        solver.source, "times", globals={}, defines={"EXTRA": 1}, zero_init=("out",), **LAUNCH
    )
    kernel.defjvp(lambda primals, tangents: (kernel(*primals), 10 * tangents[0]))
    assert jax.jvp(kernel, (X,), (X,))[1][1] == 10
    solver.change("FACTOR *", "EXTRA + FACTOR *")
    assert kernel(X)[1] == 3
    assert jax.jvp(kernel, (X,), (X,))[1][1] == 10
    kernel.defjvp(lambda primals, tangents: (kernel(*primals), 20 * tangents[0]))
    assert jax.jvp(kernel, (X,), (X,))[1][1] == 20
    other = copy.copy(kernel)
    other.defjvp(lambda primals, tangents: (kernel(*primals), 30 * tangents[0]))
    assert jax.jvp(other, (X,), (X,))[1][1] == 30
    assert jax.jvp(kernel, (X,), (X,))[1][1] == 20
    copied = pickle.loads(pickle.dumps(jge.cuda_kernel(solver.source, "times", grid=1, block=8)))
    solver.change("EXTRA +", "5 +")
    assert copied.current() is not copied


def test_globals_are_those_that_were_given(solver):
    values = np.array([3.0])
    solver.change("extern", "__constant__ float c[1];\nextern")
    solver.change("FACTOR *", "c[0] *")
    kernel = jge.cuda_kernel(solver.source, "times", globals={"c": values}, **LAUNCH)
    values[0] = 100
    solver.change("c[0] *", "10 + c[0] *")
    assert kernel(X)[1] == 13
    solver.change("float c[1]", "float d[1]")
    with pytest.raises(ValueError, match="'c'"):
        kernel(X)


def test_kernels_outlive_their_files(solver, times):
    assert times(X)[1] == 2
    solver.source.unlink()
    solver.header.unlink()
    assert times(X)[1] == 2
    solver.source.write_text(KERNEL.replace("FACTOR", "4"))
    solver.factor(3)
    assert times(X)[1] == 4


def test_modules_autotuned_kernels_and_encoders_follow(solver):
    module = jge.cuda_module(solver.source)
    kernel = module.kernel("times", **LAUNCH)
    tuned = jge.autotune(kernel, [{"defines": {"A": a}} for a in (1, 2)], repeats=1)
    out = np.zeros_like(X)
    compared = module.kernel("times", reference=lambda x: x * out[1], **LAUNCH)

    def results():
        with jge.Encoder() as encoder:
            encoder.append(kernel, X, out)
        jge.testing.check_kernel(compared, X)
        return [float(kernel(X)[1]), float(tuned(X)[1]), float(out[1])]

    assert results() == [2, 2, 2]
    timings = tuned.timings
    solver.factor(3)
    solver.change("FACTOR *", "2 * FACTOR *")
    assert results() == [6, 6, 6]
    assert tuned.timings is not timings
    solver.change('extern "C"', 'extern "C" __global__ void another(float* out) {}\nextern "C"')
    assert [*module.kernels] == ["another", "times"]
    assert "another(float* out)" in repr(module)


def test_what_is_compiled_is_what_was_hashed(solver, monkeypatch):
    source = Source(KERNEL, str(solver.source), folder=solver.source.parent, is_file=True)
    compile_shared_object = host.compile_shared_object
    left = 1

    def compile_slowly(*args, **kwargs):
        nonlocal left
        image = compile_shared_object(*args, **kwargs) if left < 2 else Image(b"", (), "")
        if left > 0:
            left -= 1
            solver.factor(5 + left)
        return image

    monkeypatch.setattr(host, "compile_shared_object", compile_slowly)
    solver.factor(4)
    image = compile_source(source, ["times"], "cpu", None)
    solver.factor(5)
    assert compile_source(source, ["times"], "cpu", None) is image
    left = 100
    solver.factor(4)
    with pytest.raises(jge.KernelCompileError, match=r"times\.cu includes changed each of 10"):
        compile_source(source, ["times"], "cpu", None)

    def interrupt(*args, **kwargs):
        monkeypatch.setattr(host, "compile_shared_object", compile_shared_object)
        solver.factor(5)
        raise KeyboardInterrupt

    monkeypatch.setattr(host, "compile_shared_object", interrupt)
    solver.factor(4)
    with pytest.raises(KeyboardInterrupt):
        compile_source(source, ["times"], "cpu", None)


def test_a_file_that_is_younger_than_clocks_can_tell_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "k.cu"

    def read():
        return Source(path.read_text(), str(path), is_file=True)

    path.write_text("a")
    stamp = files._stamp(str(path))
    monkeypatch.setattr(files, "_stamp", lambda _: stamp)
    followed = files.FollowedSource(read, str(path))
    path.write_text("b")
    assert followed.current().source.text == "b"
    stamp = (1, 1, 1, 1)
    followed = files.FollowedSource(read, str(path))
    path.write_text("c")
    assert followed.current().source.text == "b"
    stamp = (2, 1, 1, 1)
    assert followed.current().source.text == "c"


def test_a_header_that_a_macro_names_is_followed(tmp_path):
    (tmp_path / "factor.h").write_text("#define FACTOR 2\n")
    path = tmp_path / "times.cu"
    path.write_text(
        "#define S(x) #x\n#define T(x) S(x)\n#define BASE factor\n"
        + KERNEL.replace('"factor.h"', "T(BASE.h)")
    )
    kernel = jge.cuda_kernel(path, "times", **LAUNCH)
    for factor in (2, 3, 2):
        (tmp_path / "factor.h").write_text(f"#define FACTOR {factor}\n")
        assert kernel(X)[1] == factor
        assert kernel.current() is kernel.current()

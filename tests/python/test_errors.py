"""Bad input: every message names the kernel, what was expected and what came, and what to do."""

import os
import re
import stat
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge

ROOT = Path(__file__).parents[2]
SCALE = r"""
extern "C" __global__ void scale(const float* x, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i];
}
"""
X = np.linspace(0, 1, 100, dtype=np.float32)


def make(source=SCALE, name="scale", **changes):
    arguments = {"out_shape": lambda x, **_: x, "grid": 1, "block": 128}
    return jge.cuda_kernel(source, name, **{**arguments, **changes})


@pytest.fixture(scope="module")
def scale():
    return make()


# ---------------------------------------------------------------------- source and name


def test_a_source_that_does_not_compile_shows_the_users_line():
    kernel = make(
        r"""extern "C" __global__ void broken(const float* x, float* out) {
              out[0] = x[0] +;
            }""",
        "broken",
    )
    with pytest.raises(jge.KernelCompileError) as caught:
        kernel(X)
    lines = Path(__file__).read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "out[0] = x[0] +;" in text)
    assert f"{__file__}:{line}:" in str(caught.value)
    assert "broken" in str(caught.value)
    assert "out[0] = x[0] +;" in str(caught.value)
    assert "error" in caught.value.log


def test_a_name_that_is_not_there_lists_those_that_are():
    lines = Path(__file__).read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "void scale(" in text)
    with pytest.raises(
        ValueError, match=rf"no __global__ function `scaly`; it has scale \(line {line}\)"
    ):
        make(name="scaly")


def test_an_instance_that_is_not_there_lists_the_kernels():
    text = SCALE + "template <typename T> __global__ void twice(const T* x, T* out) {}\n"
    with pytest.raises(ValueError, match=r"does not name one kernel .*kernels are: scale, twice"):
        make(text, "twice<floaty>", params={"x": "const float*", "out": "float*"})(X)


def test_a_signature_that_is_no_kernels_tells_the_parameter_and_the_line():
    lines = Path(__file__).read_text().splitlines()
    source = 'extern "C" __global__ void deep(const float** rows, float* out) {}'
    line = 1 + next(i for i, text in enumerate(lines) if source in text)
    with pytest.raises(TypeError, match=rf"{line}: `deep` takes .*`rows`") as caught:
        make(source, "deep")
    assert "params=" in str(caught.value)


def test_a_typedef_that_hides_a_pointer_suggests_params(tmp_path):
    (tmp_path / "types.h").write_text("typedef const float* cvec;\n")
    path = tmp_path / "hidden.cu"
    path.write_text(
        '#include "types.h"\n'
        'extern "C" __global__ void hidden(cvec v, float* out) { out[0] = v[0]; }\n'
    )
    kernel = jge.cuda_kernel(
        path, "hidden", out_shape=jax.ShapeDtypeStruct((1,), jnp.float32), grid=1, block=1
    )
    with pytest.raises(
        TypeError, match=r"is a pointer for the compiler.*params=\{'v': 'float const"
    ):
        kernel(v=np.float32(1))
    fixed = jge.cuda_kernel(
        path,
        "hidden",
        params={"v": "float const*"},
        out_shape=jax.ShapeDtypeStruct((1,), jnp.float32),
        grid=1,
        block=1,
    )
    assert fixed(X[5:])[0] == X[5]


# ---------------------------------------------------------------------- arguments


def test_arguments_are_checked_when_the_call_is_traced(scale):
    cases = {
        r"scale\(const float\* x, .*\) takes 1 input \(x\); got 2; values are keywords": lambda: (
            scale(X, X, a=1.0, n=1)
        ),
        r"keyword n is missing": lambda: scale(X, a=1.0),
        r"b is no by-value parameter; they are: a, n": lambda: scale(X, a=1.0, n=1, b=2),
        r"alpha is no by-value parameter; they are: a, n": lambda: scale(X, alpha=1.0, n=1),
        r"'x' is an input: pass it by position": lambda: scale(x=X, a=1.0, n=1),
        r"'out' is an output, which the call returns: leave it out": lambda: scale(
            X, out=X, a=1.0, n=1
        ),
        r"float\* out is an output: write const float\* for": lambda: scale(X, X, a=1.0, n=1),
        r"input 'x' points to float; got int32": lambda: scale(np.arange(4), a=1.0, n=4),
        r"'n' \(int\) takes an int32 scalar; got 1.5": lambda: scale(X, a=1.0, n=1.5),
        r"'n' \(int\) holds -2147483648 to 2147483647; got 3000000000": lambda: scale(
            X, a=1.0, n=3_000_000_000
        ),
        r"'a' \(float\) takes a float32 scalar; got 1j": lambda: scale(X, a=1j, n=1),
        r"keyword 'a': a number, or .* is expected; got str": lambda: scale(X, a="two", n=1),
        r"keyword 'a': a number, or .* is expected; got list": lambda: scale(X, a=[1.0], n=1),
        r"keyword 'a': a number, or .* is expected; got dict": lambda: scale(X, a={"b": 1}, n=1),
        r"keyword 'a': .* expected; got Fraction": lambda: scale(X, a=Fraction(1, 2), n=1),
        r"keyword 'a': a number, or .* is expected; got None": lambda: scale(X, a=None, n=1),
        r"'a' \(float\): 1e\+300 is out of the range of float32": lambda: scale(X, a=1e300, n=1),
        r"out_shape gives 0 \(x: None in this call\)": lambda: scale(None, a=1.0, n=1),
        r"input 'x': an array is expected; got 'abc'": lambda: scale("abc", a=1.0, n=1),
        r"input 'x': .* got a tuple of 3 arguments: pass them one by one": lambda: scale(
            (X, 1.0, 1)
        ),
        r"Convert it with .astype\('float32'\), or .* name=\"scale<{x}>\" for any": lambda: scale(
            np.arange(4), a=1.0, n=4
        ),
        r"keywords a, n are missing": lambda: scale(X),
        r"takes 1 input \(x\); got 2": lambda: scale(X, None, a=1.0, n=1),
        r"input 'x' has elements of type key.*key_data": lambda: scale(
            jax.random.key(0), a=1.0, n=1
        ),
        r"'a' is passed by value and is an array of shape \(100,\)": lambda: scale(X, a=X, n=1),
    }
    for pattern, call in cases.items():
        with pytest.raises(TypeError, match=pattern) as caught:
            jax.eval_shape(call)
        assert "scale" in str(caught.value)


def test_a_wrong_call_is_shown_beside_the_signature(scale):
    signature = "kernel scale(const float* x, float* out, float a, int n)"
    called = {
        "scale(float32[100], float32[3,4], a=1.0, n=1)": lambda: scale(
            X, X[:12].reshape(3, 4), a=1.0, n=1
        ),
        "scale(float64[2], a=1.0, n=1)": lambda: scale(np.ones(2), a=1.0, n=1),
        "scale(float32[100], b='two')": lambda: scale(X, b="two"),
        "scale(float32[100], a=1.0)": lambda: scale(X, a=1.0),
    }
    with jax.enable_x64(True):
        for shown, call in called.items():
            with pytest.raises(TypeError) as caught:
                call()
            first, last = str(caught.value).splitlines()[:2]
            assert first.startswith(signature)
            assert last == f"  called as {shown}"
    with pytest.raises(TypeError, match=r"called as scale\(float32\[100\], b=float32\[\]\)"):
        jax.jit(lambda b: scale(X, b=b))(1.0)


def test_a_wrong_call_with_a_traced_value_is_about_the_users_kernel(scale):
    signature = r"kernel scale\(const float\* x, float\* out, float a, int n\)"
    broken = {
        rf"{signature}: input 'x' points to float.*\n  called as scale\(int32\[4\], a=float32": (
            lambda a: scale(X[:4].astype(np.int32), a=a, n=1)
        ),
        rf"{signature} takes 1 input \(x\); got 0": lambda a: scale(a=a, n=1),
        rf"{signature}: keyword n is missing": lambda a: scale(X, a=a),
        rf"{signature} has 1 output \(out\) to be shaped": lambda a: make(
            out_shape=lambda x, **_: (x, x)
        )(X, a=a, n=1),
        r"kernel 'scale': grid=-1": lambda a: make(grid=-1)(X, a=a, n=1),
    }
    for pattern, call in broken.items():
        with pytest.raises((TypeError, ValueError), match=pattern):
            jax.eval_shape(call, 2.0)
    source = SCALE.replace('extern "C"', "template <typename T>").replace("float", "T")
    template = make(source, "scale<{x}>", reference=lambda x, *, a, n: x[:1], cpu="reference")
    traced = jax.jit(lambda a: template(X, a=a, n=1)).trace(2.0)
    with pytest.raises(TypeError, match=r"kernel 'scale<float>': its reference returns float32\[1"):
        traced.lower(lowering_platforms=("cpu",))


def test_wrong_results_are_refused():
    with pytest.raises(TypeError, match=r"has 1 output \(out\) to be shaped; out_shape gives 2"):
        make(out_shape=lambda x, **_: (x, x))(X, a=1.0, n=1)
    with pytest.raises(TypeError, match=r"'out' points to float; out_shape says float64"):
        make(out_shape=jax.ShapeDtypeStruct((3,), np.float64))(X, a=1.0, n=1)
    with pytest.raises(TypeError, match=r"out_shape has 3, which has no shape and dtype"):
        make(out_shape=3)(X, a=1.0, n=1)
    with pytest.raises(TypeError, match=r"the shape \(2.5,\), which is not made of integers"):
        make(out_shape=jax.ShapeDtypeStruct((2.5,), np.float32))(X, a=1.0, n=1)
    cut = make(out_shape=lambda x, n, **_: jax.ShapeDtypeStruct((n,), x.dtype))
    with pytest.raises(TypeError, match=r"a shape with a traced value .*static_argnames"):
        jax.eval_shape(lambda n: cut(X, a=1.0, n=n), 1)
    with pytest.raises(TypeError, match=r"has no output: every pointer is const"):
        make('extern "C" __global__ void none(const float* x) {}', "none")


def test_an_error_in_the_users_function_names_the_kernel():
    with pytest.raises(AttributeError) as caught:
        make(grid=lambda x, **_: x.sizes)(X, a=1.0, n=1)
    assert any("grid= of kernel scale(const float* x" in note for note in caught.value.__notes__)


def test_an_error_in_a_function_of_shapes_shows_what_it_was_given():
    cases = {
        "called as scale(float32[100], a=1.0)": lambda: make(
            values={"n": lambda x, **_: x.shape[1]}
        )(X, a=1.0),
        "a=1.0, n=int32[])\n  n: traced, so only shape and dtype": lambda: jax.eval_shape(
            lambda n: make(grid=lambda x, n, **_: n // 2)(X, a=1.0, n=n), 1
        ),
    }
    for expected, call in cases.items():
        with pytest.raises((TypeError, IndexError)) as caught:
            call()
        (note,) = (note for note in caught.value.__notes__ if "of kernel" in note)
        assert expected in note


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("bwd", "pattern"),
    [
        (lambda _, ct, *, a, n: ct, r"one for each input \(x\); got no tuple"),
        (lambda _, ct, *, a, n: (ct, ct), r"one for each input \(x\); got 2"),
        (lambda _, ct: (ct,), "unexpected keyword"),
    ],
)
def test_a_wrong_derivative_rule_names_the_kernel_and_what_it_is_given(bwd, pattern, traced):
    scale = make()
    scale.defvjp(lambda x, *, a, n: (scale(x, a=a, n=n), None), bwd)
    slope = jax.grad(lambda x, a: scale(x, a=a, n=100).sum())
    with pytest.raises(TypeError, match=pattern) as caught:
        (jax.jit(slope) if traced else slope)(X, 2.0)
    notes = "".join(caught.value.__notes__)
    assert "in the rule bwd of kernel 'scale', which is given by keyword" in notes
    assert "a" in notes.partition("keyword: ")[2].splitlines()[0].split(", ")


# ---------------------------------------------------------------------- launches


@pytest.mark.parametrize(
    ("launch", "pattern"),
    [
        ({"block": 2048}, r"block.x is 2048 in block=\(2048, 1, 1\); the limit is 1024"),
        ({"block": (32, 64)}, r"2048 threads; the limit is 1024"),
        ({"block": (1, 1, 65)}, r"block.z is 65 .* the limit is 64"),
        ({"block": 0}, r"block=\(0, 1, 1\) has no threads"),
        ({"grid": (1, 70000)}, r"grid.y is 70000 .* the limit is 65535"),
        ({"grid": -1}, r"grid=-1 has a negative number"),
        ({"grid": 3, "cluster": 2}, r"grid=\(3, 1, 1\) is not a multiple of cluster=\(2, 1, 1\)"),
    ],
)
def test_launches_over_the_limits_are_refused_before_the_launch(launch, pattern):
    with pytest.raises(ValueError, match=pattern) as caught:
        make(**launch)(X, a=1.0, n=1)
    assert "kernel 'scale'" in str(caught.value)
    if "limit" in pattern:
        whole = {"grid": 1, "block": 128, "cluster": 1, **launch}
        for what in whole:
            dims = np.append(whole[what], [1, 1])[:3].tolist()
            assert f"{what}={tuple(dims)}" in str(caught.value)


@pytest.mark.parametrize("grid", ["two", 1.5, (1, 2, 3, 4), True])
def test_launches_of_the_wrong_type_are_refused(grid):
    with pytest.raises(TypeError, match=r"kernel 'scale': grid="):
        make(grid=grid)(X, a=1.0, n=1)


@pytest.mark.usefixtures("cpu")
def test_what_only_the_device_knows_is_refused_with_its_limit():
    with pytest.raises(
        jge.LaunchLimitError, match=r"asks for shared_mem=300000 bytes; the limit on .* is \d+ \("
    ):
        make(shared_mem=300_000)(X, a=1.0, n=1)
    with pytest.raises(
        ValueError,
        match=r"asks for clusters of 2 blocks; the limit on .* is 1 \(grid=\(2, 1, 1\), "
        r"block=\(128, 1, 1\), cluster=\(2, 1, 1\), shared_mem=0\)",
    ):
        make(grid=2, cluster=2)(X, a=1.0, n=1)
    with pytest.raises(ValueError, match=r"asks for a cooperative launch, which .* does not have"):
        make(cooperative=True)(X, a=1.0, n=1)
    kernel = make(cooperative=True, reference=lambda x, *, a, n: a * x)
    with pytest.warns(
        jge.ReferenceUsedWarning, match="runs its reference on the CPU: .* cooperative"
    ):
        np.testing.assert_array_equal(kernel(X, a=2.0, n=100), 2 * X)


# ---------------------------------------------------------------------- rules


def test_derivatives_and_batches_without_a_rule_name_the_ways(scale):
    with pytest.raises(NotImplementedError, match=r"'scale' has no derivative.*reference=.*defvjp"):
        jax.grad(lambda x: jnp.sum(scale(x, a=1.0, n=100)))(X)
    alone = make(vmap=None)
    with pytest.raises(NotImplementedError, match=r"no batching rule.*vmap='nodes'.*'sequential'"):
        jax.vmap(lambda x: alone(x, a=1.0, n=100))(X[None])


@pytest.mark.usefixtures("cpu")
def test_a_reference_of_another_shape_is_refused():
    kernel = make(reference=lambda x, *, a, n: x[:3], cpu="reference")
    with pytest.raises(TypeError, match=r"its reference returns float32\[3\]; the kernel returns"):
        kernel(X, a=1.0, n=100)
    kernel = make(reference=lambda x, *, a, n: 1.0, cpu="reference")
    with pytest.raises(TypeError, match=r"its reference returns float32\[\]; the kernel returns"):
        kernel(X, a=1.0, n=100)


@pytest.mark.usefixtures("cpu")
def test_an_error_in_the_reference_names_the_kernel():
    with pytest.raises(TypeError, match="unexpected keyword") as caught:
        make(reference=lambda x, a: x, cpu="reference")(X, a=1.0, n=100)
    assert "in reference= of kernel 'scale'" in caught.value.__notes__


@pytest.mark.parametrize("changes", [{"vmap": "nodes?"}, {"cpu": "gpu"}, {"cpu": "reference"}])
def test_wrong_choices_are_refused(changes):
    with pytest.raises(ValueError, match=r"expected|needs reference="):
        make(**changes)


# ---------------------------------------------------------------------- failing kernels


@pytest.mark.usefixtures("cpu")
def test_a_failing_kernel_is_named_and_the_process_goes_on(scale):
    kernel = make(
        "#include <assert.h>\n"
        'extern "C" __global__ void picky(const float* x, float* out) {'
        " assert(x[threadIdx.x] < 0.5f); out[threadIdx.x] = 1; }",
        "picky",
        block=100,
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"picky.*x\[threadIdx.x\] < 0.5f"):
        jax.block_until_ready(kernel(X))
    np.testing.assert_array_equal(kernel(X * 0), np.ones(100))
    np.testing.assert_array_equal(scale(X, a=2.0, n=100), 2 * X)


# ---------------------------------------------------------------------- the CPU


BARRIER = (
    'extern "C" __global__ void barrier(const float* x, float* out) {\n'
    '  asm volatile("bar.sync 0;");\n'
    "  out[threadIdx.x] = x[threadIdx.x];\n"
    "}"
)


@pytest.mark.usefixtures("cpu")
def test_what_the_cpu_cannot_run_is_refused_or_replaced_by_the_reference():
    with pytest.raises(jge.UnsupportedOnCpuError, match=r"inline PTX \(asm\) .*reference="):
        make(BARRIER, "barrier")(X)
    kernel = make(BARRIER, "barrier", reference=lambda x: x + 1)
    with pytest.warns(
        jge.ReferenceUsedWarning,
        match=r"'barrier' runs its reference on the CPU: .*:2: inline PTX \(asm\) [^\n;]* "
        r"\(cpu='reference' says that this is wanted\)$",
    ):
        np.testing.assert_array_equal(kernel(X), X + 1)
    with pytest.raises(jge.UnsupportedOnCpuError):
        make(BARRIER, "barrier", reference=lambda x: x + 1, cpu="source")(X)


@pytest.mark.usefixtures("cpu")
def test_no_compiler_says_what_works_instead(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("JAX_GRAPHENC_CXX", raising=False)
    source = SCALE + "// not compiled before\n"
    with pytest.raises(jge.CompilerNotFoundError, match=r"g\+\+.*reference="):
        make(source)(X, a=1.0, n=100)
    kernel = make(source, reference=lambda x, *, a, n: a * x)
    with pytest.warns(jge.ReferenceUsedWarning, match="runs its reference"):
        np.testing.assert_array_equal(kernel(X, a=2.0, n=100), 2 * X)


# ---------------------------------------------------------------------- images


@pytest.mark.usefixtures("cpu")
def test_an_image_needs_its_parameters_and_the_right_platform():
    with pytest.raises(ValueError, match=r"image, which does not tell.*params="):
        jge.cuda_kernel(b"\x7fELF", "f", grid=1, block=1)
    kernel = jge.kernel_call(
        b"\x7fELF",
        "f",
        params={"x": "const float*", "out": "float*"},
        out_shape=lambda x: x,
        grid=1,
        block=1,
    )
    with pytest.raises(
        jge.UnsupportedOnCpuError, match=r"image for cuda and is called on cpu.*reference="
    ):
        kernel(X)
    kernel = jge.kernel_call(
        b"\x7fELF",
        "f",
        params={"x": "const float*", "out": "float*"},
        out_shape=lambda x: x,
        grid=1,
        block=1,
        reference=lambda x: 2 * x,
    )
    with pytest.warns(
        jge.ReferenceUsedWarning,
        match=r"image for cuda and is called on cpu \(cpu='reference' says",
    ):
        np.testing.assert_array_equal(kernel(X), 2 * X)


@pytest.mark.parametrize("declared", ["", "inout", "float**", "in float", "value float*", "*"])
def test_a_parameter_that_is_not_described_is_refused(declared):
    with pytest.raises(ValueError, match=r"a C\+\+ type is expected"):
        jge.kernel_call(
            b"\x7fELF", "f", params={"x": declared}, out_shape=lambda x: x, grid=1, block=1
        )


# ---------------------------------------------------------------------- options


def test_options_are_checked():
    with pytest.raises(TypeError, match=r"'verbose' is not an option; the options are max_ops"):
        jge.options(verbose=True)
    bad_values = {"debug": 1, "max_ops_per_graph": 0, "max_mb_per_graph": True, "cache_dir": 3}
    for name, value in bad_values.items():
        with pytest.raises(ValueError, match="is expected"):
            jge.options(**{name: value})


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_bad_environment_variable_is_named():
    done = run("import jax_graphenc", JAX_GRAPHENC_MAX_OPS_PER_GRAPH="many")
    assert "MAX_OPS_PER_GRAPH='many': a positive integer below 2**31 is" in done.stderr
    assert done.returncode == 1


def test_a_cache_folder_that_others_can_write_is_not_used(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    kernel = make(SCALE + "// another source\n")
    with (
        jge.options(cache_dir=folder),
        pytest.warns(UserWarning, match=r"JAX_GRAPHENC_CACHE_DIR"),
    ):
        np.testing.assert_array_equal(kernel(X, a=2.0, n=100), 2 * X)
    assert not list(folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777


def test_no_gpu_is_said_plainly():
    done = run("from jax_graphenc import _core; print(_core.why_no_cuda() or 'has one')")
    if "has one" in done.stdout:
        pytest.skip("this machine has a GPU")
    assert "libcuda.so.1 was not found: this machine has no NVIDIA driver" in done.stdout
    with pytest.raises(RuntimeError, match=r"no GPU can be used: libcuda\.so\.1 was not found"):
        jge._core.device_info("cuda", 0)


def test_a_traced_launch_says_what_to_do():
    with pytest.raises(TypeError, match=r"grid is a traced value.*static_argnums"):
        jax.jit(lambda n: make(grid=n)(X, a=1.0, n=1))(1)


# ---------------------------------------------------------------------- the page in the docs


def test_the_page_says_what_every_bad_input_gives():
    # Where this fails: run tools/error_table.py, and read what changed as a user would.
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "error_table.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_only_a_gpu_shows_stands_in_the_source():
    page = (ROOT / "docs" / "errors.md").read_text()
    rows = page[page.index("## What only a GPU shows") :]
    source = "".join(path.read_text() for path in (ROOT / "plugin").rglob("*.cc"))
    # Strings as the compiler joins them.
    source = re.sub(r'"\s*(\+\s*)?"', "", source)
    texts = [text for row in rows.splitlines() for text in re.findall(r"`([^`]*… ?[^`]*)`", row)]
    between = r"…|(?<=asks for )|(?=; the limit)"
    pieces = [piece for text in texts for piece in re.split(between, text) if len(piece) > 9]
    assert len(pieces) > 12, pieces
    for piece in pieces:
        piece = piece.removeprefix("no GPU can be used: ")
        assert piece.strip("; :(") in source, piece

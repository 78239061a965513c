"""Several kernels of one source, folders of headers, and variables that begin as Python says."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.compiler import nvrtc
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Source
from jax_graphenc.signature.globals import with_globals

pytestmark = pytest.mark.usefixtures("cpu")

SOLVER = """
#ifndef FACTOR
#define FACTOR 2
#endif
extern "C" __global__ void twice(const float* x, float* out) {
  out[threadIdx.x] = FACTOR * x[threadIdx.x];
}
template <typename T, int N, bool NEGATIVE>
__global__ void times(const T* x, T* out) {
  out[threadIdx.x] = (NEGATIVE ? -N : N) * x[threadIdx.x];
}
"""
X = np.arange(8, dtype=np.float32)


def shape_of(x, **_):
    return x


SHAPE = {"out_shape": shape_of, "grid": 1, "block": 8}


@pytest.fixture
def solver(tmp_path):
    path = tmp_path / "solver.cu"
    path.write_text(SOLVER)
    return path


# ---------------------------------------------------------------------- modules


def test_several_kernels_of_one_file(solver, monkeypatch):
    monkeypatch.chdir(solver.parent)
    module = jge.cuda_module("solver.cu", defines={"FACTOR": 5})
    assert [*module.kernels] == ["twice", "times"]
    np.testing.assert_array_equal(module.kernel("twice", **SHAPE)(X), 5 * X)
    np.testing.assert_array_equal(module.kernel("twice", defines={"FACTOR": 7}, **SHAPE)(X), 7 * X)
    for x in (X, X.astype(np.int32)):
        for sign, flag in ((1, "false"), (-1, "true")):
            kernel = module.kernel(f"times<{{x}}, 4, {flag}>", **SHAPE)
            out = kernel(x)
            assert out.dtype == x.dtype
            np.testing.assert_array_equal(out, sign * 4 * x)
    with pytest.raises(ValueError, match=r"no __global__ function `thrice`; it has twice"):
        module.kernel("thrice", **SHAPE)
    assert repr(module).startswith(f"<cuda_module {solver}: 2 kernels\n")


def test_a_module_of_text_knows_its_place():
    module = jge.cuda_module("""
    extern "C" __global__ void twice(const float* x, float* out) { out[0] = nothing; }
    """)
    with pytest.raises(jge.KernelCompileError, match=rf"{__file__}:\d+:\d+: error"):
        module.kernel("twice", **SHAPE)(X)


def test_a_module_of_an_image():
    module = jge.cuda_module(b"//\n.version 8.0")
    assert repr(module) == "<cuda_module of an image>"
    kernel = module.kernel("f", params={"x": "const float*", "out": "float*"}, **SHAPE)
    with pytest.raises(jge.UnsupportedOnCpuError, match="'f' was given as an image for cuda"):
        kernel(X)
    with pytest.raises(TypeError, match="known when it is loaded"):
        _ = module.kernels
    with pytest.raises(TypeError, match="compiled already"):
        jge.cuda_module(b"//\n.version 8.0", defines={"A": 1})


def test_a_file_and_its_headers_that_change_are_compiled_again(tmp_path):
    (tmp_path / "inc").mkdir()
    header, path = tmp_path / "inc" / "factor.h", tmp_path / "k.cu"
    text = '#include "factor.h"\n' + SOLVER
    results = []
    for factor, body in ((3, text), (4, text), (4, text.replace("= FACTOR", "= 10 + FACTOR"))):
        header.write_text(f"#define FACTOR {factor}\n")
        path.write_text(body)
        module = jge.cuda_module(path, include_dirs=[tmp_path / "inc"])
        results.append(float(module.kernel("twice", **SHAPE)(X)[1]))
    assert results == [3, 4, 14]


def test_folders_of_headers_are_checked(solver):
    with pytest.raises(ValueError, match=r"include_dirs= names .*nowhere, which is no folder"):
        jge.cuda_module(solver, include_dirs=[solver.parent / "nowhere"])


# ---------------------------------------------------------------------- variables

GLOBALS = """
struct Params { float scale; int shift[2]; };
__constant__ float coefficients[4]; // __constant__ float decoy;
namespace ns { static __device__ int offset = 1; }
__constant__ __align__(16) double matrix[2][N];
__constant__ Params p;
extern "C" __global__ void f(const float* x, float* out) {
  int i = threadIdx.x;
  out[i] = coefficients[i % 4] * x[i] + ns::offset + matrix[1][2] + p.scale + p.shift[1];
}
"""
PARAMS = np.zeros((), [("scale", np.float32), ("shift", np.int32, 2)])
PARAMS["scale"], PARAMS["shift"] = 0.5, (10, 20)
COEFFICIENTS = np.array([1, -2, 0.1, 4])
VALUES = {
    "coefficients": COEFFICIENTS,
    "offset": 7,
    "matrix": np.arange(6).reshape(2, 3),
    "p": PARAMS,
}


def make(values, source=GLOBALS):
    return jge.cuda_kernel(source, "f", defines={"N": 3}, globals=values, **SHAPE)


def expected(values):
    return np.tile(values["coefficients"], 2).astype(np.float32) * X + values["offset"] + 5 + 20.5


def test_variables_begin_as_python_says():
    other = {**VALUES, "coefficients": jnp.ones(4), "offset": -1}
    one, two = make(VALUES), make(other)

    @jge.graph
    def both(x):
        return one(x), two(x)

    for call in (lambda x: (one(x), two(x)), jax.jit(lambda x: (one(x), two(x))), both):
        first, second = call(X)
        np.testing.assert_allclose(first, expected(VALUES), rtol=1e-6)
        np.testing.assert_allclose(second, expected(other), rtol=1e-6)


def test_variables_are_exported_with_the_program():
    kernel = make(VALUES)
    exported = jax.export.export(jax.jit(kernel), disabled_checks=jge.export_checks())(X)
    again = jax.export.deserialize(exported.serialize())
    np.testing.assert_allclose(again.call(X), expected(VALUES), rtol=1e-6)


def test_variables_of_modules_and_kernels_add_up():
    first = {name: VALUES[name] for name in ("coefficients", "matrix", "offset")}
    module = jge.cuda_module(GLOBALS, defines={"N": 3}, globals=first)
    kernel = module.kernel("f", globals={"p": PARAMS, "ns::offset": 9}, **SHAPE)
    np.testing.assert_allclose(kernel(X), expected({**VALUES, "offset": 9}), rtol=1e-6)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("float v[4]", np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)),
        ("float v[4]", np.array([1e-45, 1 / 3, 3.4e38, -7.25], np.float32)),
        ("double v[4]", np.array([5e-324, np.pi, np.nan, 1.7e308])),
        ("long long v[2]", np.array([-(2**63), 2**63 - 1])),
        ("unsigned char v[8]", np.arange(248, 256, dtype=np.uint8)),
        ("unsigned long v[1]", np.array([2**64 - 1], np.uint64)),
        ("bool v[3]", np.array([True, False, True])),
        ("float4 v[2]", np.arange(8, dtype=np.float32).reshape(2, 4)),
        ("cuFloatComplex v[2]", np.array([1 - 2j, np.inf], np.complex64)),
        ("__half v[3]", np.array([1.5, -65504, np.nan], np.float16)),
        ("__nv_bfloat16 v[2]", np.array([1.5, -3e38], ml_dtypes.bfloat16)),
        (
            "S v[2]",
            np.array([(1, 2.5), (3, -4.5)], np.dtype([("a", "i1"), ("b", "f8")], align=True)),
        ),
    ],
)
@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_every_bit_of_a_value_arrives(declared, value, target):
    if target != "cpu":
        pytest.importorskip("cuda.bindings.nvrtc")
    text = (
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuComplex.h>\n"
        f"struct S {{ signed char a; double b; }};\n__constant__ {declared};\n"
        # Through an integer: NVRTC 13.0 fails where it folds the address of a constant.
        'extern "C" __global__ void f(unsigned char* out) {\n'
        "  auto address = (unsigned long long)&v;\n"
        "  auto from = (const unsigned char*)(address + blockIdx.y);\n"
        "  for (int i = 0; i < sizeof(v); ++i) out[i] = from[i];\n}\n"
    )
    written = with_globals(text, {"v": value}, "<f>")
    assert written.count("\n") == text.count("\n")
    if target != "cpu":
        source = Source(written, "<f>")
        data = nvrtc.compile_image(source, ["f"], "compute_90").data.decode()
        line = next(line for line in data.splitlines() if line.startswith(".const"))
        there = bytes(int(b) for b in line.partition("{")[2].partition("}")[0].split(","))
        assert there.ljust(value.nbytes, b"\0") == _without_padding(value)
        compile_source(source, ["f"], target, None)
        return
    kernel = jge.cuda_kernel(
        written,
        "f",
        out_shape=jax.ShapeDtypeStruct((value.nbytes,), np.uint8),
        grid=1,
        block=1,
    )
    got = np.asarray(kernel()).tobytes()
    if value.dtype.names:
        got = _without_padding(np.frombuffer(got, value.dtype))
    assert got == _without_padding(value)


def _without_padding(value):
    clean = np.zeros(value.shape, value.dtype)
    for name in value.dtype.names or ():
        clean[name] = value[name]
    return (clean if value.dtype.names else value).tobytes()


@pytest.mark.parametrize(
    ("values", "error", "pattern"),
    [
        (
            {"nothing": 1},
            ValueError,
            "'nothing', which .* does not declare .* those are: coefficie",
        ),
        ({"decoy": 1}, ValueError, "'decoy', which .* does not declare"),
        (
            {"coefficients": np.ones(3)},
            ValueError,
            r"`float coefficients\[4\]` cannot hold .*\(3,\)",
        ),
        ({"coefficients": 1.0}, ValueError, r"cannot hold an array of shape \(\)"),
        ({"offset": 1.5}, TypeError, "`int offset` holds int32; got float64"),
        ({"offset": 2**40}, TypeError, "`int offset` holds -2147483648 to"),
        ({"coefficients": np.full(4, 1e300)}, TypeError, "out of the range of float32"),
        ({"coefficients": ["a"] * 4}, TypeError, "is no dtype that can be written"),
    ],
)
def test_values_that_do_not_fit(values, error, pattern):
    with pytest.raises(error, match=pattern):
        make(values)


def test_traced_values_and_pointers_are_refused():
    with pytest.raises(TypeError, match="a number or an array that is known"):
        jax.eval_shape(lambda c: make({"coefficients": c})(X), jnp.ones(4))
    with pytest.raises(TypeError, match="is a pointer; pass such an array as an input"):
        make({"table": np.ones(3)}, "__device__ float* table;\n" + GLOBALS)


def test_a_size_that_only_the_compiler_knows_is_checked_by_it():
    with pytest.raises(
        jge.KernelCompileError, match=r"globals= gives matrix an array of shape \(2, 2"
    ):
        make({**VALUES, "matrix": np.ones((2, 2))})(X)


def test_two_variables_of_one_name():
    text = "namespace a { __constant__ int n; }\nnamespace b { __constant__ int n; }\n"
    with pytest.raises(ValueError, match="'n', which is one of a::n, b::n: write which"):
        with_globals(text, {"n": 1}, "<f>")
    assert "namespace b { __constant__ int n = 1LL; }" in with_globals(text, {"b::n": 1}, "<f>")
    either = "#if A\n__constant__ int n;\n#else\n__constant__ int n = 3;\n#endif\n"
    assert with_globals(either, {"n": 1}, "<f>").count("n = 1LL;") == 2

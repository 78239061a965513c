"""What ``cuda_kernel`` and ``kernel_call`` take, and what they refuse before any call."""

import copy
import inspect
import pickle
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.compiler.diagnostics import UnknownKernelError

SCALE = r"""
template <typename T> __global__ void scale(const T* x, T* out, float a) {
  int i = threadIdx.x; out[i] = T(a) * x[i];
}
extern "C" __global__ void inc(float* u) { u[threadIdx.x] += 1; }
"""
X = np.arange(8, dtype=np.float32)


def make(source, name, **changes):
    arguments = {"out_shape": lambda x, *_, **__: x, "grid": 1, "block": 8}
    return jge.cuda_kernel(source, name, **{**arguments, **changes})


def body(text, parameters="const float* x, float* out", name="f"):
    return f'extern "C" __global__ void {name}({parameters}) {{ int i = threadIdx.x; {text} }}'


# ---------------------------------------------------------------------- source


@pytest.mark.parametrize(
    ("source", "error", "pattern"),
    [
        (None, TypeError, r"source is CUDA C\+\+ text, a pathlib.Path, .*; got NoneType"),
        ("", ValueError, "kernel 'f': the source is empty"),
        (" \n", ValueError, "kernel 'f': the source is empty"),
        ("kernels/f.cu", ValueError, r"looks like a file: pass pathlib.Path\('kernels/f.cu'\)"),
        ("f.ptx", ValueError, r"looks like a file: pass pathlib.Path\('f.ptx'\)"),
        (body("").encode(), TypeError, r"these are CUDA source: pass a string, source.decode\(\)"),
        (b"", TypeError, "an image is bytes that are not empty"),
        ({"gpu": b"x"}, ValueError, "an image for 'gpu': the platforms are 'cuda' and 'cpu'"),
        ({"cuda": "x"}, TypeError, "an image is bytes"),
    ],
)
def test_sources_that_are_none(source, error, pattern):
    with pytest.raises(error, match=pattern):
        make(source, "f", params={"x": "const float*", "out": "float*"})


@pytest.mark.usefixtures("cpu")
def test_images_of_kernel_call(tmp_path):
    params = {"x": "const float*", "out": "float*"}
    launch = {"params": params, "out_shape": lambda x: x, "grid": 1, "block": 1}
    with pytest.raises(TypeError, match=r"an image is bytes or a pathlib.Path; got str"):
        jge.kernel_call("f.cubin", "f", **launch)
    path = tmp_path / "image"
    path.write_bytes(b"\x7fELF")
    kernel = jge.kernel_call(
        path, "f", **launch, cpu="reference", reference=jnp.sin, vmap="sequential"
    )
    np.testing.assert_allclose(jax.vmap(kernel)(X), np.sin(X), rtol=1e-6)


@pytest.mark.parametrize("more", [{"defines": {"A": 1}}, {"options": ["-w"]}])
def test_what_is_compiled_already_takes_no_compilers_options(more):
    with pytest.raises(TypeError, match=r"compiled already: defines=, options=.* are for source"):
        make(b"\x7fELF", "f", params={"x": "const float*", "out": "float*"}, **more)


# ---------------------------------------------------------------------- defines and options


def test_defines_are_what_c_expects():
    source = body("""
        #if !USE || OFF
        wrong
        #endif
        out[i] = sizeof(NAME) + N + F EMPTY;""")
    source = source.replace("{ int i = threadIdx.x;", "{ int i = threadIdx.x;\n")
    kernel = make(
        source,
        "f",
        defines={
            "USE": True,
            "OFF": False,
            "EMPTY": None,
            "N": np.int64(3),
            "F": 0.5,
            "NAME": "char",
        },
    )
    np.testing.assert_array_equal(kernel(X), np.full(8, 4.5))


@pytest.mark.parametrize(
    ("more", "pattern"),
    [
        ({"defines": {"A": [1]}}, r"defines=\{'A': \[1\]\}: a name, and a number"),
        ({"defines": {3: 1}}, r"defines=\{3: 1\}: a name, and a number"),
        ({"defines": ["A"]}, r"defines=\['A'\]: a mapping is expected"),
        ({"options": "-DA=1"}, r"options='-DA=1': a sequence of strings is expected"),
        ({"options": [1]}, r"options=\[1\]: a sequence of strings is expected"),
        ({"params": ["inout"]}, r"params=\['inout'\]: a mapping is expected"),
        ({"params": {"out": 3}}, r"params=\{'out': 3\}: a parameter's name and a string"),
    ],
)
def test_tables_of_the_wrong_type(more, pattern):
    with pytest.raises(TypeError, match=pattern):
        make(body(""), "f", **more)


# ---------------------------------------------------------------------- name


@pytest.mark.parametrize("name", ["scale<{x>", "scale<{}>", "scale<x}>", "scale<{x!r}>"])
def test_braces_hold_the_name_of_an_input(name):
    with pytest.raises(ValueError, match=r"braces hold the name of an input, such as 'scale<{x}>'"):
        make(SCALE, name)


@pytest.mark.parametrize(
    ("name", "error", "pattern"),
    [
        (None, TypeError, "a kernel's name is a string, such as 'scale'.*; got NoneType"),
        (Path("f.cu"), TypeError, "a kernel's name is a string.*; got PosixPath"),
        (" ", ValueError, "a kernel's name is empty"),
        (body(""), ValueError, r"name= is CUDA source.*cuda_kernel\(source, name, ...\)"),
        ("f.cu", ValueError, r"name= is a file.*cuda_kernel\(source, name, ...\)"),
    ],
)
def test_what_is_no_name(name, error, pattern):
    with pytest.raises(error, match=pattern) as caught:
        make("f", name)
    assert "threadIdx" not in str(caught.value)
    with pytest.raises(error, match=pattern):
        jge.cuda_module(body("")).kernel(name, out_shape=X, grid=1, block=1)


@pytest.mark.parametrize(
    "text", ["int i = threadIdx.x; out[i] = x[i];", 'extern "C" void f(const float* x) { }']
)
def test_a_source_without_a_kernel_shows_one(text):
    with pytest.raises(ValueError, match=r'no __global__ .*write extern "C" __global__ void f\('):
        make(text, "f")


def test_a_source_in_the_place_of_a_kernel_is_not_shown_whole():
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        for wants in (jge.testing.check_kernel, encoder.append, lambda k: jge.autotune(k, [{}])):
            with pytest.raises(TypeError, match="kernel") as caught:
                wants(10 * SCALE)
            assert len(str(caught.value)) < 120


def test_a_launch_in_brackets_says_where_it_belongs():
    kernel = make(body("out[i] = n * x[i];", "const float* x, float* out, int n"), "f")
    tuned = jge.autotune(kernel, [{"block": 8}])
    for f in (kernel, tuned):
        with pytest.raises(TypeError, match=r"'f': .* grid= and block=.* call it as f\(x, n=...\)"):
            f[1, 8](X, n=2)


def test_a_template_is_looked_up_when_it_is_defined():
    with pytest.raises(ValueError, match=r"no __global__ function `scal<{x}>`; it has scale<T>"):
        make(SCALE, "scal<{x}>")
    for name in ("out", "z"):
        with pytest.raises(ValueError, match=rf"'{name}' is no input; the inputs are x"):
            make(SCALE, f"scale<{{{name}}}>")


def test_a_kernel_that_writes_nothing_is_refused_when_it_is_defined():
    for shape in (None, jax.ShapeDtypeStruct((1,), jnp.float32)):
        with pytest.raises(TypeError, match="has no output: every pointer is const"):
            make(body("", "const float* x"), "f", out_shape=shape)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((-1,), r"out_shape has the shape \(-1,\), with a negative size"),
        ((2**62,), rf"\({2**62},\) float32, {2**64} bytes; the limit is {2**48}"),
        ((2**30, 2**29), rf"float32, {2**61} bytes; the limit is {2**48}"),
    ],
)
@pytest.mark.parametrize("wrap", [jax.jit, lambda f: jax.jit(jge.graph(f))])
def test_shapes_that_no_array_has(shape, said, wrap):
    kernel = make(body(""), "f", out_shape=jax.ShapeDtypeStruct(shape, jnp.float32))
    with pytest.raises(ValueError, match=rf"kernel 'f': .*{said}"):
        wrap(kernel).lower(X)
    if min(shape) > 0:
        kernel = make(body(""), "f")
        with pytest.raises(ValueError, match=rf"kernel 'f': input 'x' .*{said}"):
            wrap(kernel).lower(jax.ShapeDtypeStruct(shape, jnp.float32))


def test_more_parameters_than_can_be():
    many = ", ".join(f"const float* p{i}" for i in range(340))
    with pytest.raises(ValueError, match=r"kernel 'f' has 342 parameters; the limit is 320"):
        make(body("", f"const float* x, float* out, {many}"), "f")
    struct = "struct Large { char c[32752]; };"
    kernel = make(struct + body("", "const float* x, float* out, Large s"), "f")
    large = np.zeros((), [("c", "i1", 32752)])[()]
    with pytest.raises(
        ValueError, match=r"kernel 'f'.* 32768 bytes of parameters \('s' alone 32752\); .* 32764"
    ):
        kernel(X, s=large)


# ---------------------------------------------------------------------- params


@pytest.mark.parametrize("text", ["InOut", "in-out", "output", "Float"])
def test_what_is_neither_a_role_nor_a_type_is_refused(text):
    with pytest.raises(
        ValueError, match=rf"'{text}' is no role, which are in, out, inout, scratch, value"
    ):
        make(SCALE, "inc", params={"u": text})


@pytest.mark.parametrize(
    ("text", "role"),
    [
        *(("const float* __restrict__", "in"), ("float const * const restrict", "in")),
        *(("float* const", "out"), ("volatile float *__restrict", "out")),
        *(("inout float* __restrict__", "inout"), ("in float*", "in"), ("float", "value")),
    ],
)
def test_types_as_c_writes_them(text, role):
    kernel = jge.kernel_call(
        b"\x7fELF", "f", params={"x": text, "out": "float*"}, out_shape=X, grid=1, block=1
    )
    x, _ = kernel.definition.parameters(())
    assert (x.role, x.type) == (role, "float")


def header(folder, text):
    (folder / "part.h").write_text(text)
    path = folder / "whole.cu"
    path.write_text('#include "part.h"\n')
    return path


def test_a_typedef_of_a_header_passed_by_position_suggests_params(tmp_path):
    path = header(tmp_path, "typedef const float* In;\n")
    path.write_text(
        path.read_text() + "struct Step { int n; };\n"
        'extern "C" __global__ void f(In x, float* out, Step s) { out[0] = x[s.n]; }\n'
    )
    step = np.array((3,), [("n", "i4")])[()]
    calls = []
    kernel = make(path, "f", out_shape=lambda x, **_: calls.append(x) or x)
    with pytest.raises(TypeError, match=r"takes 0 inputs \(none\); got 1.*'x' is of type In") as e:
        kernel(X)
    assert "if it is a pointer, write params={'x': 'const float*'}" in str(e.value)
    assert "Step, which" not in str(e.value)
    assert not calls
    kernel = make(path, "f", params={"x": "const float*"}, out_shape=X[:1])
    assert kernel(X, s=step)[0] == 3


def test_a_kernel_elsewhere_needs_params_in_full(tmp_path):
    path = header(
        tmp_path, "#define KERNEL(name) " + body("out[i] = 2 * x[i];").replace("f(", "name(")
    )
    path.write_text('#include "part.h"\nKERNEL(f)\n')
    with pytest.raises(ValueError, match="params= in full"):
        make(path, "f")
    with pytest.raises(ValueError, match="params= in full"):
        make(path, "f", params={"x": "in", "out": "float*"})
    kernel = make(path, "f", params={"x": "const float*", "out": "float*"})
    np.testing.assert_array_equal(kernel(X), 2 * X)
    with pytest.raises(ValueError, match="it has none at all"):
        make("struct S {};", "f", params={"x": "const float*", "out": "float*"})


def test_a_missing_input_of_a_template_is_counted():
    with pytest.raises(TypeError, match=r"takes 1 input \(x\); got 0"):
        make(SCALE, "scale<{x}>")(a=1.0)


def test_a_dtype_that_cuda_has_no_type_for():
    with pytest.raises(TypeError, match=r"'scale': input 'x': CUDA C\+\+ has no type for .*int4"):
        make(SCALE, "scale<{x}>")(jnp.zeros(8, jnp.int4), a=1.0)


def test_types_that_begin_with_const():
    source = "struct my_constants { float a; };\n" + body("out[i].a = 1;", "my_constants* out")
    kernel = make(source, "f", out_shape=jax.ShapeDtypeStruct((8,), jnp.float32))
    np.testing.assert_array_equal(kernel(), np.ones(8))


# ---------------------------------------------------------------------- calls


def test_keywords_that_python_cannot_name():
    kernel = make(body("out[i] = lambda + self;", "float* out, float lambda, int self"), "f")
    with pytest.raises(TypeError, match="keywords lambda, self are missing"):
        kernel()
    kernel = make(
        body("out[i] = lambda + self;", "float* out, float lambda, int self"), "f", out_shape=X
    )
    np.testing.assert_array_equal(kernel(self=1, **{"lambda": 0.5}), np.full(8, 1.5))
    assert str(inspect.signature(kernel)) == "(*, self, **keywords__)"


def test_python_sees_the_signature():
    kernel = make(SCALE, "scale<{x}>")
    assert str(inspect.signature(kernel)) == "(x, /, *, a)"
    assert "scale<{x}>(const {x}* x, {x}* out, float a)" in kernel.__doc__
    assert repr(kernel) == "<cuda_kernel scale<{x}>(const {x}* x, {x}* out, float a)>"
    jitted = jax.jit(kernel, static_argnames="a")
    np.testing.assert_array_equal(jitted(X, a=2.0), 2 * X)


def test_launches_take_numpy_integers_and_arrays_of_them():
    kernel = make(body("out[i] = 2 * x[i];"), "f", grid=np.array([1, 1]), block=np.int64(8))
    np.testing.assert_array_equal(kernel(X), 2 * X)
    for grid in (np.array([1.5]), np.array([[1]]), np.array([True])):
        with pytest.raises(TypeError, match=r"kernel 'f': grid="):
            make(body(""), "f", grid=grid)(X)


@pytest.mark.parametrize("shared", [(1024, 7), 1.5, [64]])
def test_shared_memory_is_one_number(shared):
    with pytest.raises(TypeError, match=r"kernel 'f': shared_mem=.* is not an integer"):
        make(body(""), "f", shared_mem=shared)(X)


def test_64_bit_types_say_how_to_have_them():
    kernel = make(body("out[i] = x[i];", "const double* x, double* out"), "f")
    with pytest.raises(TypeError, match=r'jax.config.update\("jax_enable_x64", True\)'):
        kernel(np.ones(8))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(kernel(np.ones(8)), np.ones(8))
        with pytest.raises(TypeError, match=r"points to double; got int32\. Convert it"):
            kernel(np.ones(8, np.int32))


def shape_of(x, **_):
    return x


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda k: pickle.loads(pickle.dumps(k))]
)
def test_a_copy_has_rules_of_its_own(copied):
    kernel = make(SCALE, "scale<{x}>", out_shape=shape_of)
    kernel(X, a=2.0)
    other = copied(kernel)
    other.defjvp(lambda primals, tangents, *, a: (kernel(*primals, a=a), 10 * tangents[0]))
    np.testing.assert_array_equal(other(X, a=2.0), 2 * X)
    _, tangent = jax.jvp(lambda x: other(x, a=2.0), (X,), (X,))
    np.testing.assert_array_equal(tangent, 10 * X)
    with pytest.raises(
        NotImplementedError, match=r"with scale\.defvjp\(fwd, bwd\) or scale\.defjvp"
    ):
        jax.jvp(lambda x: kernel(x, a=2.0), (X,), (X,))


@pytest.mark.parametrize("kind", [UnknownKernelError, jge.KernelCompileError])
def test_errors_can_be_sent_to_another_process(kind):
    error = pickle.loads(pickle.dumps(kind("message", "log")))
    assert (str(error), error.log) == ("message", "log")


def test_clear_caches(tmp_path):
    kernel = make(body("out[i] = 3 * x[i];"), "f")
    with jge.options(cache_dir=tmp_path / "cache"):
        for disk, expected in ((None, (1, 0)), (False, (0, 1)), (True, (1, 0))):
            if disk is not None:
                jge.clear_caches(disk)
            jge.reset_stats()
            jax.jit(lambda x: kernel(x)).lower(X)
            jax.clear_caches()
            stats = jge.stats()
            assert (stats["compiled"], stats["disk_hits"]) == expected


@pytest.mark.parametrize("device", [3, "cpu"])
def test_device_info_of_what_is_no_device(device):
    with pytest.raises(TypeError, match=r"one of jax.devices\(\) is expected; got"):
        jge.device_info(device)


# ---------------------------------------------------------------------- functions of shapes

WEIGH = body(
    "out[i] = a * x[i] + y[i] * TILE;", "const float* x, const float* y, float* out, float a"
)


@pytest.mark.parametrize(
    "grid",
    [
        lambda x: x.size // 8,
        lambda y: y.size // 8,
        lambda a, y: int(a),
        lambda block, x: x.size // block[0],
        lambda TILE: TILE // 2,
        lambda x, y, *, a: x.size // 8,  # all of them, as they come
        lambda first, second, *, a: second.size // 8,
        lambda *inputs, **keywords: inputs[1].size // 8 if keywords == {"a": 1.0} else 0,
        lambda x, y, a, *, block: block[0] // 8,
        lambda: 1,
    ],
)
def test_functions_of_shapes_name_what_they_need(grid):
    kernel = make(WEIGH, "f", grid=grid, defines={"TILE": 2}, out_shape=lambda y: y)
    np.testing.assert_array_equal(kernel(X, X, a=1.0), 3 * X)


def test_functions_of_shapes_may_name_inputs_in_any_order():
    """Also where the function could be called by position, as without by-value parameters."""
    source = body("out[i] = w[0] + x[i];", "const float* w, const float* x, float* out")
    kernel = make(source, "f", grid=2, out_shape=lambda x, w: x)
    assert jax.eval_shape(kernel, X[:3], X).shape == X.shape


def test_functions_of_shapes_may_take_the_other_keywords_unnamed():
    kernel = make(
        WEIGH, "f", grid=lambda y, **others: int(others["a"]), defines={"TILE": 2}, block=8
    )
    np.testing.assert_array_equal(kernel(X[:8], X[:8], a=1.0), 3 * X[:8])


def test_functions_of_shapes_of_a_traced_value():
    """The kernel that loads it has one input more, which is none of the user's."""
    kernel = make(
        WEIGH, "f", grid=lambda y: y.size // 8, defines={"TILE": 2}, out_shape=lambda y: y
    )
    np.testing.assert_array_equal(jax.jit(lambda a: kernel(X, X, a=a))(1.0), 3 * X)


CHAIN = body(
    "out[i] = x[i] + a + 10 * b + 100 * c;", "const float* x, float* out, int a, int b, int c"
)
CHAINED = {"c": lambda b, a: a + b, "b": lambda a, x: 2 * a + x.ndim, "a": 1}


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_values_may_use_values(order):
    kernel = make(CHAIN, "f", values={name: CHAINED[name] for name in order})
    np.testing.assert_array_equal(kernel(X), X + 1 + 30 + 400)
    np.testing.assert_array_equal(kernel(X, a=2), X + 2 + 50 + 700)
    np.testing.assert_array_equal(kernel(X, b=0), X + 1 + 0 + 100)
    out = np.zeros_like(X)
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        encoder.append(kernel, X, out, b=0)
    np.testing.assert_array_equal(out, X + 101)


def test_values_that_use_values_in_other_forms():
    outer = 5
    values = {
        "a": lambda x, a=outer: a,  # a default is the function's own
        "b": lambda *inputs, a: a + len(inputs),
        "c": lambda first, *, b, **others: b if others == {} else -1,
    }
    np.testing.assert_array_equal(make(CHAIN, "f", values=values)(X), X + 5 + 60 + 600)
    # A value that is traced is known by its type, as everywhere.
    kernel = make(CHAIN, "f", values={**CHAINED, "c": lambda b: b, "b": lambda a: a.ndim})
    np.testing.assert_array_equal(jax.jit(lambda a: kernel(X, a=a))(1), X + 1)


@pytest.mark.parametrize(
    ("values", "circle"),
    [
        ({"a": lambda a: a}, "'a' needs 'a'"),
        (
            {"a": lambda c: c, "b": lambda x, a: a, "c": lambda b: b},
            "'a' needs 'c' needs 'b' needs 'a'",
        ),
    ],
)
def test_values_that_need_each_other_are_named(values, circle):
    kernel = make(CHAIN, "f", values=values)
    with pytest.raises(TypeError, match=f"kernel 'f': values= go in a circle: {circle}"):
        kernel(X, **{name: 1 for name in "bc" if name not in values})
    with pytest.raises(
        TypeError, match=r"kernel 'f': .* takes \(z\) .* by name for b, x, c, a; or"
    ):
        make(CHAIN, "f", values={**CHAINED, "a": lambda z: z, "c": 1})(X, b=2)


@pytest.mark.parametrize("grid", [lambda z: 1, lambda x, y, z: 1, lambda x, *, z: 1])
def test_a_function_of_shapes_that_asks_for_what_is_not_there(grid):
    there = r"'f': .* cannot be called: it may ask by name for block, TILE, a, x, y; or take all"
    with pytest.raises(TypeError, match=there) as caught:
        make(WEIGH, "f", grid=grid, defines={"TILE": 2})(X, X, a=1.0)
    assert "in grid= of kernel f(" in "".join(caught.value.__notes__)

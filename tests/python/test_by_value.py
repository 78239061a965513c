"""By-value parameters of types that a source declares."""

import enum
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge

pytestmark = pytest.mark.usefixtures("cpu")
X = jnp.arange(4, dtype=jnp.float32)
MODES = r"""
enum class Mode : unsigned char { kKeep, kDouble, kNegate = 7 };
enum Sign { MINUS = -1, PLUS = 1 };
extern "C" __global__ void f(const float* x, float* out, Mode mode, Sign sign, bool shift) {
  float v = x[threadIdx.x];
  if (mode == Mode::kDouble) v *= 2;
  if (mode == Mode::kNegate) v = -v;
  out[threadIdx.x] = sign * v + (shift ? 100 : 0);
}
"""


def make(source, name="f", **options):
    return jge.cuda_kernel(
        source, name, **{"out_shape": lambda x: x, "grid": 1, "block": lambda x: x.size, **options}
    )


def f_reference(x, *, mode, sign, shift):
    return sign * jnp.where(mode == 1, 2 * x, jnp.where(mode == 7, -x, x)) + 100 * shift


modes = make(MODES, reference=f_reference)


class Mode(enum.IntEnum):
    KEEP = 0
    DOUBLE = 1


@pytest.mark.parametrize(
    ("mode", "value"),
    [
        (1, 1),
        (Mode.DOUBLE, 1),
        (np.uint8(1), 1),
        ("kDouble", 1),
        ("Mode::kNegate", 7),
        (3, 3),
    ],
)
def test_an_enumeration_is_an_integer_or_the_name_of_an_enumerator(mode, value):
    out = modes(X, mode=mode, sign="MINUS", shift=True)
    np.testing.assert_array_equal(out, f_reference(X, mode=value, sign=-1, shift=True))


def test_enumerations_reach_shape_functions_as_integers():
    kernel = make(MODES, block=lambda x, mode: x.size if mode == 1 else 1)
    out = kernel(X, mode="kDouble", sign=1, shift=False)
    np.testing.assert_array_equal(out, 2 * X)


def test_transformations_of_a_kernel_with_enumerations():
    f = lambda x: modes(x, mode="kDouble", sign=-1, shift=True)  # noqa: E731
    np.testing.assert_array_equal(jax.vmap(f)(jnp.stack([X, X + 1]))[1], -2 * (X + 1) + 100)
    np.testing.assert_array_equal(jax.grad(lambda x: f(x).sum())(X), -2 * jnp.ones(4))
    np.testing.assert_array_equal(jge.graph(lambda x: f(f(x)))(X), -2 * (-2 * X + 100) + 100)


def test_a_traced_enumeration_is_loaded():
    f = jax.jit(lambda x, mode, sign: modes(x, mode=mode, sign=sign, shift=False))
    np.testing.assert_array_equal(f(X, 1, -1), -2 * X)
    np.testing.assert_array_equal(f(X, 7, 1), -X)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"mode": "kHalf"}, "'mode' (Mode) has no enumerator 'kHalf'; it has kKeep = 0, "),
        ({"mode": 1.0}, "'mode' (Mode) is an enumeration: an integer or the name of an enumerator"),
        ({"mode": True}, "'mode' (Mode) is an enumeration"),
        ({"mode": 256}, "'mode' (Mode) holds 0 to 255; got 256"),
        ({"sign": 2**31}, "'sign' (Sign) holds -2147483648 to 2147483647; got 2147483648"),
        ({"shift": 2}, "'shift' (bool) takes a bool scalar; got 2"),
    ],
)
def test_what_is_no_value_of_an_enumeration_or_a_flag(keywords, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        modes(X, **{"mode": 0, "sign": 1, "shift": False, **keywords})


def test_a_traced_float_is_no_enumeration():
    with pytest.raises(
        TypeError, match=r"'mode' \(Mode\) takes a uint8 scalar; got a traced float32"
    ):
        jax.jit(lambda x, m: modes(x, mode=m, sign=1, shift=False))(X, 1.0)


# ---------------------------------------------------------------------- vectors and structs

VECTORS = r"""
extern "C" __global__ void f(const float* x, float* out, int3 size, float4 scale, dim3 tile) {
  out[threadIdx.x] = x[threadIdx.x] * (&scale.x)[threadIdx.x] + size.y * 10 + tile.x + tile.z;
}
"""
vectors = make(VECTORS)
SCALE = np.array([1, 2, 3, 4], np.float32)


@pytest.mark.parametrize("scale", [(1, 2, 3, 4.0), [1, 2, 3, 4], SCALE, jnp.array(SCALE),
                                   {"w": 4, "x": 1.0, "y": 2, "z": 3}])  # fmt: skip
@pytest.mark.parametrize("tile", [3, (3,), (3, 2), (3, 2, 1), {"x": 3, "y": 7, "z": 1}])
def test_vectors_from_what_stands_for_them(scale, tile):
    out = vectors(X, size=(0, 5, 0), scale=scale, tile=tile)
    np.testing.assert_array_equal(out, X * SCALE + 54)


def test_vectors_are_structured_scalars_to_functions():
    kernel = make(
        VECTORS,
        block=lambda x, size: int(size["z"]),
        reference=lambda x, size, scale, tile: x * jnp.array(scale.tolist()) + 10 * size["y"],
    )
    f = lambda x: kernel(x, size=(0, 0, 4), scale=(1, 2, 3, 4), tile=(0, 0, 0)).sum()  # noqa: E731
    np.testing.assert_array_equal(jax.grad(f)(X), SCALE)
    batched = jax.vmap(lambda x: kernel(x, size=(0, 1, 4), scale=SCALE, tile=(0, 0, 0)))
    np.testing.assert_array_equal(batched(jnp.stack([X, 2 * X]))[1], 2 * X * SCALE + 10)


STRUCT = r"""
#define N 2
enum class Kind : char { kSum = 1, kLast };
template <class T> struct Point { T x, y; };
namespace ns {
struct Params {
  char unused = 0;
  Kind kind;
  double shift;
  Point<float> at[N];
  half w;
  float4 v;
};
}
extern "C" __global__ void f(const float* x, float* out, ns::Params p) {
  float v = p.kind == Kind::kSum ? p.at[0].x + p.at[1].x : p.at[N - 1].y;
  out[threadIdx.x] = x[threadIdx.x] + v + p.shift + __half2float(p.w) + p.v.w;
}
"""
structs = make("#include <cuda_fp16.h>\n" + STRUCT)
AS_TUPLE = (0, "kSum", 100.0, [(1, 2), (3, 4)], 0.5, (0, 0, 0, 1000))
AS_DICT = {
    "v": {"x": 0, "y": 0, "z": 0, "w": 1000},
    "w": 0.5,
    "at": np.array([[1, 2], [3, 4]]),
    "shift": 100,
    "kind": 1,
    "unused": np.int8(0),
}


@pytest.mark.parametrize("p", [AS_TUPLE, list(AS_TUPLE), AS_DICT])
def test_a_struct_from_a_tuple_or_a_dict(p):
    np.testing.assert_array_equal(structs(X, p=p), X + 1104.5)
    np.testing.assert_array_equal(jge.graph(lambda x: structs(structs(x, p=p), p=p))(X), X + 2209)


def test_a_structured_scalar_of_any_layout_with_the_names_of_the_members():
    dtype = [("kind", "i4"), ("w", "f8"), ("at", "f4", (2, 2)), ("v", "f4", 4), ("shift", "f4"),
             ("unused", "i1")]  # fmt: skip
    p = np.array((2, 0.5, [[1, 2], [3, 4]], [0, 0, 0, 1000], 100, 0), dtype)[()]
    np.testing.assert_array_equal(structs(X, p=p), X + 1104.5)


def test_equal_structs_are_traced_once():
    traces = []
    kernel = make(STRUCT.replace("half w", "float w").replace("__half2float(p.w)", "p.w"),
                  grid=lambda p: traces.append(p) or 1)  # fmt: skip
    for p in (AS_TUPLE, AS_DICT, list(AS_TUPLE)):
        kernel(X, p=p)
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (AS_TUPLE[:-1], "'p' is a struct, ns::Params {char unused, Kind kind, double shift, "
         "Point<float> at[2], half w, float4 v}: a tuple of 6, or a dict by name, is expected; "
         "got 5 values"),
        (3, "or a dict by name, is expected; got 3"),
        ({**AS_DICT, "u": 1}, "'p' (ns::Params) has no member 'u'; its members are unused, kind, "),
        ({"w": 1, "v": 1}, "'p' (ns::Params) is given without its members unused, kind, shift, at"),
        ({**AS_DICT, "kind": "kMean"}, "'p.kind' (Kind) has no enumerator 'kMean'; it has"),
        ({**AS_DICT, "unused": 200}, "'p.unused' (char) holds -128 to 127; got 200"),
        ({**AS_DICT, "at": [(1, 2)]}, "'p.at' is an array, Point<float>[2]: values of that shape"),
        ({**AS_DICT, "at": [(1, 2), (3, 1j)]}, "'p.at[1].y' (float) takes a float32 scalar; got"),
        ({**AS_DICT, "w": "x"}, "keyword 'p.w': a number"),
    ],
)  # fmt: skip
def test_what_is_no_value_of_a_struct(p, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        structs(X, p=p)


def test_a_struct_is_not_traced():
    np.testing.assert_array_equal(jax.jit(lambda x: structs(x, p=AS_DICT))(X), X + 1104.5)
    message = "'p.shift' is a member of a struct that is passed by value, and is traced here"
    with pytest.raises(TypeError, match=re.escape(message)):
        jax.jit(lambda x, shift: structs(x, p={**AS_DICT, "shift": shift}))(X, 1.0)
    with pytest.raises(TypeError, match="'scale' is passed by value and is traced here, and a"):
        jax.jit(lambda x, s: vectors(x, size=(0, 0, 0), scale=s, tile=1))(X, SCALE)


def test_a_struct_whose_layout_only_the_compiler_knows_says_why():
    kernel = make(
        """struct Base { int n; }; struct P : Base { float x; };
        extern "C" __global__ void f(const float* x, float* out, P p) { *out = p.n * p.x; }"""
    )
    message = "'p' (P) is of a type whose size only the compiler knows (it has a base class), so"
    with pytest.raises(TypeError, match=re.escape(message)):
        kernel(X, p=3)
    p = np.array((2, 3.5), [("n", "i4"), ("x", "f4")])[()]
    assert kernel(X, p=p)[0] == 7


def test_the_layout_of_a_type_that_params_names():
    text = """struct P { float a; int n; };
    extern "C" __global__ void f(const float* x, float* out, P p) { *out = p.a * p.n; }"""
    params = {"x": "const float*", "out": "float*", "p": "P"}
    assert make(text, params=params)(X, p=(1.5, 2))[0] == 3
    assert make(text, params={"p": "P"})(X, p={"n": 2, "a": 1.5})[0] == 3


def test_an_encoder_takes_structs():
    out = np.zeros(4, np.float32)
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        encoder.append(structs, np.asarray(X), out, p=AS_DICT)
    np.testing.assert_array_equal(out, X + 1104.5)

"""Types and constants that a source declares, read from it."""

import pytest

from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Source
from jax_graphenc.signature.constants import NotConstantError, evaluate
from jax_graphenc.signature.layouts import Enum, Opaque, Pointer, Struct
from jax_graphenc.signature.parse import parse_signature


def layout(declarations, type="T"):
    source = f"{declarations}\n__global__ void f(float* out, {type} p) {{}}"
    return parse_signature(source, "f").parameters[1].layout


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-1", -1),
        ("0x1Fu", 31),
        ("0b101", 5),
        ("010", 8),
        ("1'000ULL", 1000),
        ("'a'", 97),
        ("1 << 3 | B", 10),
        ("(1 + 2) * 3 - 7 / 2 % 2", 8),
        ("-7 / 2", -3),
        ("-7 % 4", -3),
        ("~0", -1),
        ("ns::B", 2),
        ("1.5", 1.5),
        ("-1e-3f", pytest.approx(-1e-3)),
        (".5f", 0.5),
        ("2.", 2.0),
        ("true", True),
        ("nullptr", None),
    ],
)
def test_constant_expressions(text, value):
    found = evaluate(text, {"B": 2, "ns::B": 2}.get)
    assert found == value or found is value


@pytest.mark.parametrize(
    "text", ["", "f(2)", "C", "1 +", "(1", "1 2", "1 / 0", "1.0 + 2", "!x", "{}"]
)
def test_what_is_no_constant_expression_is_refused(text):
    with pytest.raises(NotConstantError):
        evaluate(text, {}.get)


@pytest.mark.parametrize(
    ("written", "type", "underlying", "values"),
    [
        ("enum T { A, B = 4, C };", "T", "unsigned int", {"A": 0, "B": 4, "C": 5}),
        ("enum T { A = -1, B };", "T", "int", {"A": -1, "B": 0}),
        ("enum T { A = 1 << 3, B = A | 1 };", "T", "unsigned int", {"A": 8, "B": 9}),
        ("enum T { A = 0x100000000 };", "T", "unsigned long", {"A": 2**32}),
        ("enum class T { A };", "T", "int", {"A": 0}),
        ("enum class T : unsigned char { A = 2 };", "T", "unsigned char", {"A": 2}),
        ("enum T : short { A };", "T", "short", {"A": 0}),
        ("using I = long; enum class T : I { A };", "T", "long", {"A": 0}),
        ("namespace ns { enum class T { A }; }", "ns::T", "int", {"A": 0}),
        ("struct S { enum T { A }; };", "S::T", "unsigned int", {"A": 0}),
        ("typedef enum { A, B } T;", "T", "unsigned int", {"A": 0, "B": 1}),
        ("typedef enum Tag { A } T;", "T", "unsigned int", {"A": 0}),
        ("typedef enum Tag { A } Other;", "enum Tag", "unsigned int", {"A": 0}),
        ("enum class Real { A }; using T = Real;", "T", "int", {"A": 0}),
        ("#define N 3\nenum T { A = N };", "T", "unsigned int", {"A": 3}),
        ("constexpr int N = 3; enum T { A = N };", "T", "unsigned int", {"A": 3}),
        ("enum T { A = 1, B = sizeof(int), C };", "T", "unsigned int", {"A": 1}),
    ],
)
def test_enumerations(written, type, underlying, values):
    found = layout(written, type)
    assert isinstance(found, Enum)
    assert found.underlying == underlying
    assert dict(found.enumerators) == values


def test_an_enumeration_of_a_function_is_none_of_a_kernel():
    assert layout("void g() { enum T { A }; }") is None


# ---------------------------------------------------------------------- structs


def fields(struct):
    return {f.name: (f.offset, f.type, f.shape) for f in struct.fields}


STRUCTS = r"""
#define N 4
constexpr int kRows = 2;
using Index = unsigned short;
enum class Kind : char { A };
struct Plain { float x; double y; char c; };
struct Many { int a, b; Index i; bool on = true; unsigned long long n; };
struct Arrays { char c; float m[kRows][N]; half h[3]; };
struct Nested { char c; Plain plain; Plain two[2]; };
struct Inside { struct Point { float x, y; } at; enum Color { R, G } color; struct { int n; } in; };
struct Vectors { char c; float3 a; float4 b; int2 d; uchar4 e; double2 f; dim3 g; };
struct Methods {
  float x;
  static const int kCount = 3;
  __device__ float twice() const { return 2 * x; }
  Methods() = default;
  using Self = Methods;
  friend __device__ int g(Methods);
 private:
  int n;
};
template <class T, int R> struct Box { T at[R]; Kind kind; };
using Pair = Box<double, 2>;
typedef struct { int a; Kind kind; } Typed;
namespace ns { struct Deep { Typed t; Pair p; }; }
struct __align__(16) Aligned { float x; };
struct alignas(32) Wide { char c; Aligned a; };
struct Half { __half h; __nv_bfloat16 b; cuFloatComplex z; const int k; volatile long l; };
struct Empty {};
"""
NAMES = [
    *("Plain", "Many", "Arrays", "Nested", "Inside", "Vectors", "Methods", "Box<float, 3>"),
    *("Pair", "Typed", "ns::Deep", "Aligned", "Wide", "Half", "Inside::Point", "Empty"),
    *("float3", "float4", "int1", "short2", "char3", "ulonglong2", "double4", "dim3", "half2"),
]


def test_layouts_of_structs():
    assert fields(layout(STRUCTS, "Arrays")) == {
        "c": (0, "char", ()),
        "m": (4, "float", (2, 4)),
        "h": (36, "half", (3,)),
    }
    assert fields(layout(STRUCTS, "Nested")) == {
        "c": (0, "char", ()),
        "plain": (8, "Plain", ()),
        "two": (32, "Plain", (2,)),
    }
    assert fields(layout(STRUCTS, "Box<float, 3>")) == {
        "at": (0, "float", (3,)),
        "kind": (12, "Kind", ()),
    }


@pytest.mark.parametrize("target", ["cpu", "sm_80"])
def test_the_compiler_lays_structs_out_alike(target):
    asserts = []
    for name in NAMES:
        struct = layout(STRUCTS, name)
        assert isinstance(struct, Struct), struct
        asserts.append(f"static_assert(sizeof({name}) == {struct.size} && "
                       f'alignof({name}) == {struct.alignment}, "{name}");')  # fmt: skip
        asserts += [
            f'static_assert(__builtin_offsetof({name}, {f.name}) == {f.offset}, "{name}.{f.name}");'
            for f in struct.fields
            if name != "Methods"  # no standard layout
        ]
    text = (
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuComplex.h>\n"
        + STRUCTS
        + "\n".join(asserts)
        + '\nextern "C" __global__ void f(float* out) {}'
    )
    if target != "cpu":
        pytest.importorskip("cuda.bindings.nvrtc")
    compile_source(Source(text, "structs.cu"), ["f"], target, None)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("struct B { int n; }; struct T : B { int m; };", "it has a base class"),
        ("struct T { unsigned a : 3; };", "it has bit-fields"),
        ("struct T { union { int a; float b; } u; };", "it has a union"),
        ("struct T { union { int a; float b; }; };", "it has a union"),
        ("struct T { struct { int a; }; };", "it has an unnamed struct without a member's name"),
        ("struct T { virtual void f() {} };", "it has virtual functions"),
        ("#pragma pack(1)\nstruct T { int a; };", "the source has #pragma pack"),
        ("struct __attribute__((packed)) T { int a; };", "it has __attribute__"),
        ("struct T { int a; } __attribute__((packed));", "it has __attribute__"),
        ("struct T { alignas(16) int a; };", "a member has alignas(16)"),
        ("struct T { int* a[2]; };", "its member 'a' is of type int*[]"),
        ("struct T { int** a; };", "its member 'a' is of type int**"),
        ("struct S { int* p; }; struct T { S s[2]; };", "'s' is an array of structs with pointers"),
        ("struct T { int a[n]; };", "n is no constant that is known"),
        ("struct T { int (*f)(int); };", "its member 'f' is of type int()*"),
        ("struct T { Other o; };", "its member 'o' is of type Other, which the source does not"),
        ("struct S { int a : 2; }; struct T { S s; };", "it has bit-fields"),
        ("template <class A> struct T { T<A> t; };", "it is nested too deep"),
        ("using V = int[3]; struct T { V v; };", "the type of its member 'v' is an array"),
    ],
)
def test_structs_whose_layout_only_the_compiler_knows(written, why):
    found = layout(written)
    assert isinstance(found, Opaque)
    assert why in found.why


def test_names_of_other_scopes():
    source = """namespace ns { enum class E : short { A }; struct S { E e; int n[kN]; };
    constexpr int kN = 2; using Alias = S; } using namespace ns;"""
    assert layout(source, "E").underlying == "short"
    assert layout(source, "ns::Alias").size == 12
    assert layout("namespace a { struct T { int n; }; } namespace b { struct T {}; }") is None


SPECIAL = """
template <class A> struct V { A a; };
template <> struct V<float> { float a, b; };
struct U { V<float> v; };
"""


def test_specializations_of_structs():
    assert layout(SPECIAL, "V<float>").size == 8
    assert layout(SPECIAL, "U").size == 8
    assert layout(SPECIAL, "V<int>").why == "it has specializations"


def test_pointers_in_structs():
    source = """struct Inner { char c; const float* const p; };
    template <class T> struct Outer { int n; T* out; Inner in; const Inner* of; };"""
    assert [*layout(source, "Outer<double>").pointers()] == [
        ("out", 8, Pointer("double", False)),
        ("in.p", 24, Pointer("float", True)),
        ("of", 32, Pointer("Inner", True)),
    ]
    assert [f.name for f in layout(source, "Outer<double>").data] == ["n", "in"]


def test_a_struct_that_the_source_does_not_declare_has_no_layout():
    assert layout("struct T;") is None

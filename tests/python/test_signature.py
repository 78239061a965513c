# tests/python/test_signature.py: signatures read from CUDA source, and C++ types as dtypes
"""Tests of jax_graphenc.signature."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_graphenc.signature.parse import list_kernels, parse_signature
from jax_graphenc.signature.signature import Parameter
from jax_graphenc.signature.types import dtype_of, element_of, header_of, spelling_of


def shown(source: str, name: str = "f", **options: object) -> str:
    """The parsed signature as text, without the name."""
    text = str(parse_signature(source, name, **options))  # type: ignore[arg-type]
    return text.removeprefix(name)


# ---- one kernel, one parameter list -------------------------------------------------------------


def test_saxpy():
    source = (
        "// saxpy\n"
        'extern "C" __global__ void saxpy(const float* x, const float* y, float* out, float a, '
        "int n) { }\n"
    )
    signature = parse_signature(source, "saxpy")
    assert str(signature) == ("saxpy(const float* x, const float* y, float* out, float a, int n)")
    assert signature.line == 2
    assert signature.extern_c
    assert signature.template_parameters == ()
    assert signature.parameters[0] == Parameter("x", "float", "in", True, True)
    assert [p.role for p in signature.parameters] == ["in", "in", "out", "value", "value"]
    with pytest.raises(FrozenInstanceError):
        signature.line = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", ""),
        ("void", ""),
        ("  /* none */ ", ""),
        ("float const *x", "const float* x"),
        ("const float* const x", "const float* x"),
        ("float* const x", "float* x"),
        ("const float *__restrict__ x, float*__restrict y", "const float* x, float* y"),
        ("volatile float* x, const volatile int* y", "float* x, const int* y"),
        ("unsigned long long int n", "unsigned long long n"),
        ("long int unsigned* n, short int s", "unsigned long* n, short s"),
        ("unsigned const* p, long const int* q", "const unsigned int* p, const long* q"),
        ("const int n", "int n"),
        ("float x[], const float y[16]", "float* x, const float* y"),
        ("int a, /* , int b */ int c // , int d\n", "int a, int c"),
        ("int n = 4, float a = f(1, 2)", "int n, float a"),
        ("[[maybe_unused]] int n, const __grid_constant__ Params p", "int n, Params p"),
        ("struct Params p, const struct Params* q", "Params p, const Params* q"),
        ("std :: uint32_t n, ::std::size_t m", "std::uint32_t n, ::std::size_t m"),
        ("Vec<float,3> v, const cuda::std::complex<float>* z",
         "Vec<float, 3> v, const cuda::std::complex<float>* z"),
        ("Vec<const float *, N> v, Pair<Vec<int, 2>, (1 < 2)> w",
         "Vec<const float*, N> v, Pair<Vec<int, 2>, (1<2)> w"),
        ("cuda::std::span<const float> s", "cuda::std::span<const float> s"),
        ("const float4* x, uchar2* y", "const float4* x, uchar2* y"),
        ("decltype(1.0f) a, const void* p", "decltype(1.0f) a, const void* p"),
        ("float (*x)", "float* x"),
        ("__align__(16) int n, alignas(8) float a", "int n, float a"),
    ],
)  # fmt: skip
def test_parameter_list(written, read):
    assert shown(f"__global__ void f({written}) {{}}") == f"({read})"


@pytest.mark.parametrize(
    "head",
    [
        '__global__ void f({}) {{}}',
        'extern "C" __global__ void f({}) {{}}',
        'extern "C" {{ __global__ void f({}) {{}} }}',
        "static __global__ void f({}) {{}}",
        "__global__ static void f({}) {{}}",
        "inline __global__ void f({}) {{}}",
        "namespace {{ __global__ void f({}) {{}} }}",
        "__global__ __launch_bounds__(256) void f({}) {{}}",
        "__global__ void __launch_bounds__(N * (4 + 1), 2)\nf({}) {{}}",
        "__launch_bounds__(64) __global__ void f({}) {{}}",
        "__global__ void __cluster_dims__(2, 1, 1) __maxnreg__(32) f({}) {{}}",
        "[[gnu::used]] __global__ void f({}) {{}}",
        "__attribute__((used)) __global__ auto f({}) -> void {{}}",
        "__global__\nvoid\nf\n({})\n{{}}",
        "__global__ void f({});",
        "// __launch_bounds__(\n__global__ void f({}) {{}} // )",
        "/* __global__ void f(int) {{}} */ __global__ void f({}) {{}}",
        'const char* s = "__global__ void f(int a);"; __global__ void f({}) {{}}',
        'const char* s = R"x(__global__ void f(int a) {{ " )x"; __global__ void f({}) {{}}',
        'const char* s = R"(\n/* )"; __global__ void f({}) {{}} /* */',
        "#define KERNEL __global__ void\nKERNEL f({}) {{}}",
        "#define LB __launch_bounds__(32)\n__global__ void LB f({}) {{}}",
        "#define NAME f\n__global__ void NAME({}) {{}}",
        "#pragma once\n#include <a.h>\n#include \"no such\"\n__global__ void f({}) {{}}",
        "#error no\n__global__ void f({}) {{}}",
        "namespace a {{ extern \"C\" __global__ void f({}) {{}} }}",
        "inline namespace v1 {{ __global__ void f({}) {{}} }}",
    ],
)  # fmt: skip
def test_ways_to_declare(head):
    source = head.format("const float* x, int n")
    assert shown(source) == "(const float* x, int n)"


def test_line_is_that_of_the_name():
    source = "\n\ntemplate <int N>\n__global__\nvoid f(int a,\n int b) {}\n__global__ void g() {}"
    assert [(k.name, k.line) for k in list_kernels(source)] == [("f", 5), ("g", 7)]


@pytest.mark.parametrize("gap", [1, 5, 6, 7, 8, 40])
def test_line_after_preprocessing(gap):
    source = "#define A 1\n#if 0\n" + "int a;\n" * gap + "#endif\n__global__ void f() {}\n"
    assert parse_signature(source, "f").line == gap + 4


def test_user_line_directive_does_not_move_lines():
    assert parse_signature('#define A\n#line 90 "u.cu"\n__global__ void f() {}', "f").line == 3


def test_crlf_bom_and_unicode():
    source = "\ufeff// наиве \U0001f680\r\n#define T float\r\n"
    source += "__global__ void f(const T* x,\r\n  int n) {}"
    assert shown(source) == "(const float* x, int n)"
    assert parse_signature(source, "f").line == 3
    assert shown("__global__ void f(int é /* 漢 */, float* x) {}") == "(int é, float* x)"
    assert shown("// \ud800\n__global__ void f(int a) {}") == "(int a)"


def test_directives_after_bom_and_with_crlf():
    source = "\ufeff#define K(T) \\\r\n  __global__ void \\\r\n  f(T* x)\r\nK(int) {}\r\n"
    assert shown(source) == "(int* x)"
    assert shown("\ufeff#define T int\n__global__ void f(T* x) {}") == "(int* x)"


def test_body_does_not_matter():
    body = """{
      __shared__ float s[32]; extern __shared__ float4 dyn[];
      asm volatile("mov.u32 %0, %%laneid;" : "=r"(*(unsigned*)y));
      auto g = [=](float v) { return v * 2; };
      #pragma unroll
      for (int i = 0; i < 1'000; ++i) y[i] = g(x[i]);
      using T = double; (void)R"(} __global__ void no(int a) {)";
      other<T><<<1, 2, 0, nullptr>>>(x, T(1)); char c = '"';
    }"""
    for define in ("", "#define UNUSED 1\n"):
        source = (
            f"{define}__global__ void f(const T* x, T* y) {body}\n__global__ void g(int n) {{}}"
        )
        assert shown(source) == "(const T* x, T* y)"
        assert shown(source, "g") == "(int n)"
        assert len(list_kernels(source)) == 2


# ---- names --------------------------------------------------------------------------------------

SCOPES = """
namespace a { namespace b { __global__ void f(int ab) {} } }
namespace c::d { __global__ void f(int cd) {} extern "C" __global__ void g(int g) {} }
inline namespace v1 { namespace e { __global__ void h(int e) {} } }
namespace k { __global__ void m(int); }
__global__ void k::m(int k) {}
"""


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("a::b::f", "int ab"),
        ("::a::b::f", "int ab"),
        ("c :: d::f", "int cd"),
        ("c::d::g", "int g"),
        ("g", "int g"),
        ("e::h", "int e"),
        ("v1::e::h", "int e"),
        ("k::m", "int k"),
    ],
)
def test_qualified_names(name, read):
    assert shown(SCOPES, name) == f"({read})"


def test_not_found_lists_what_is_there():
    with pytest.raises(
        ValueError, match=r"u\.cu: no __global__ function `z`; it has a::b::f \(line 2\)"
    ):
        parse_signature(SCOPES, "z", filename="u.cu")
    with pytest.raises(ValueError, match=r"Did you mean `e::h`\?"):
        parse_signature(SCOPES, "h")
    with pytest.raises(ValueError, match="none at all"):
        parse_signature("", "f")
    with pytest.raises(ValueError, match=r"Line 2 has `f\("):
        parse_signature("\n__device__ void f(int a) {}", "f")
    for bad in ("", "f<", "<int>", "f(", "a b", "::", "f\n", "{}"):
        with pytest.raises(ValueError, match="no __global__ function"):
            parse_signature(SCOPES, bad)


def test_declaration_and_definition_are_one_kernel():
    source = (
        "__global__ void f(const float*, int);\n__global__ void f(const float x[], const int n) {}"
    )
    assert shown(source) == "(const float* x, int n)"
    assert parse_signature(source, "f").line == 2
    source += "\n__global__ void f(const float* again, int);"
    assert shown(source) == "(const float* x, int n)"
    assert len(list_kernels(source)) == 1


def test_overloads_are_refused():
    source = "__global__ void f(float* x) {}\n__global__ void f(double* x) {}"
    with pytest.raises(ValueError, match=r"overloaded \(line 1: f\(float\* x\); line 2: f\(double"):
        parse_signature(source, "f")


# ---- aliases ------------------------------------------------------------------------------------

ALIASES = """
typedef float real, *real_ptr;
using index = unsigned long int;
using cvec = const float4*;
template <class T> using ptr = T*;
template <class T> using in = const ptr<T>;
typedef struct { int a; } Params;
typedef struct Node Node;
typedef double row[4];
using callback = float (*)(float);
struct S { using value = short; typedef int* mine; };
namespace n {
using real = double;
using std::int8_t;
__global__ void g(const real* x, ::real* y, index i, int8_t b) {}
}
using n_real = n::real;
void host() { using index = int; typedef char real; }
"""


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("const real* x, real a", "const float* x, float a"),
        ("real_ptr x, const real_ptr y", "float* x, float* y"),
        ("index n, index const* p", "unsigned long n, const unsigned long* p"),
        ("cvec v", "const float4* v"),
        ("ptr<real> x, ptr<const real> y", "float* x, const float* y"),
        ("in<real> x", "float* x"),
        ("Params p, const Params* q, Node* t", "Params p, const Params* q, Node* t"),
        ("row r, const row s", "double* r, const double* s"),
        ("S::value s, S::mine t", "short s, int* t"),
        ("n_real* x, n::real y", "double* x, double y"),
        ("const cuda::std::complex<real>* z, Vec<Pair<real, 2>, index> w",
         "const cuda::std::complex<float>* z, Vec<Pair<real, 2>, unsigned long> w"),
    ],
)  # fmt: skip
def test_aliases(written, read):
    assert shown(f"{ALIASES}\n__global__ void f({written}) {{}}") == f"({read})"


def test_aliases_of_the_innermost_scope():
    assert shown(ALIASES, "n::g") == ("(const double* x, float* y, unsigned long i, std::int8_t b)")


def test_alias_of_an_outer_name_is_no_cycle():
    source = (
        "using real = float; namespace n { using real = Vec<real>; __global__ void f(real x); }"
    )
    assert shown(source, "n::f") == "(Vec<float> x)"


@pytest.mark.parametrize("cycle", ["using a = b; using b = a*;", "using a = V<a, a>;"])
def test_alias_cycles_end(cycle):
    assert " x)" in shown(f"{cycle} __global__ void f(a x) {{}}")


# ---- templates ----------------------------------------------------------------------------------

TEMPLATES = """
using real = float;
template <int N> struct Vec { float v[N]; };
template <typename T> __global__ void scale(const T* x, T* y, T a, int n) {}
template <> __global__ void scale<double>(const double* x, double* y, double a, int n) {}
template __global__ void scale<int>(const int* x, int* y, int a, int n);
template <class T, int N = 4, typename U = T, bool B = (N > 2), template <int> class V = Vec>
__global__ void __launch_bounds__(N * 32) many(const T* x, V<N> v, U* y, A<B> b) {}
template <typename T> requires std::integral<T> __global__ void con(T a) {}
template <std::integral T, auto K> __global__ void con2(T a, W<K> w) {}
template <class T = float> __global__ void dflt(T a);
template <class U> __global__ void dflt(U b) {}
template <typename... Ts> __global__ void pack(const float* x, Ts... rest) {}
template <class T, typename = std::enable_if_t<(sizeof(T) >= 4)>> __global__ void sfinae(T* x) {}
template <class T> __global__ void member(typename T::type x, const typename T::type* y, ns::T z) {}
"""


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("scale<float>", "const float* x, float* y, float a, int n"),
        ("scale<double>", "const double* x, double* y, double a, int n"),
        ("scale< unsigned  long int >",
         "const unsigned long* x, unsigned long* y, unsigned long a, int n"),
        ("scale<real>", "const float* x, float* y, float a, int n"),
        ("scale<{x}>", "const {x}* x, {x}* y, {x} a, int n"),
        ("many<float>", "const float* x, Vec<4> v, float* y, A<(4>2)> b"),
        ("many<T, 8, U>", "const T* x, Vec<8> v, U* y, A<(8>2)> b"),
        ("many<Pair<int, 2>, (1 > 0), double, true, W>",
         "const Pair<int, 2>* x, W<(1>0)> v, double* y, A<true> b"),
        ("many<int, (1 < 2), double>", "const int* x, Vec<(1<2)> v, double* y, A<((1<2)>2)> b"),
        ("con<int>", "int a"),
        ("con2<long long, 3>", "long long a, W<3> w"),
        ("dflt<>", "float b"),
        ("sfinae<int>", "int* x"),
        ("member<S>", "S::type x, const S::type* y, ns::T z"),
    ],
)  # fmt: skip
def test_template_instances(name, read):
    assert str(parse_signature(TEMPLATES, name)) == f"{name}({read})"


def test_template_argument_may_be_a_pointer():
    assert shown(TEMPLATES, "con<const float*>") == "(const float* a)"
    assert shown(TEMPLATES, "con<real* const>") == "(float* a)"


def test_template_parameters_are_told():
    assert parse_signature(TEMPLATES, "many<float>").template_parameters == (
        "T",
        "N",
        "U",
        "B",
        "V",
    )
    listed = {k.name: str(k) for k in list_kernels(TEMPLATES)}
    assert listed["con"] == "con(T a)"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scale", r"4: `scale` is a template: name an instance, scale<T> .*such as float"),
        ("scale<int, 3>", r"2 template arguments for scale<T>, which takes 1"),
        ("many<>", r"no template argument for `T` of many<T, N, U, B, V>"),
    ],
)
def test_template_errors(name, message):
    with pytest.raises(ValueError, match=message):
        parse_signature(TEMPLATES, name)


def test_plain_function_is_no_template():
    with pytest.raises(ValueError, match=r"`f` is not a template: leave `<int>` out"):
        parse_signature("__global__ void f(int a) {}", "f<int>")


def test_specialization_of_a_template_from_elsewhere():
    source = "template <> __global__ void f<float>(float* x) {}\n"
    source += "template <> __global__ void f<int>(int* x) {}"
    assert shown(source, "f<int>") == "(int* x)"
    with pytest.raises(ValueError, match=r"specializations: f<float>, f<int>"):
        parse_signature(source, "f<double>")


# ---- macros and conditions ----------------------------------------------------------------------

MACROS = """
#define REAL float
#define PTR(T) const T*
#define DEFINE(name, T) \\
  __global__ void name##_k(const T* x, T* y) {}
#ifdef USE_DOUBLE
using scalar = double;
__global__ void cond(const double* x) {}
#else
using scalar = float;
__global__ void cond(const float* x) {}
#endif
DEFINE(mac, REAL)
__global__ void f(PTR(REAL) x,
#if WEIGHTS > 1
   const float* w,
#elif defined(FLAG)
   int flag,
#endif
   scalar* y) {}
"""


@pytest.mark.parametrize(
    ("name", "defines", "read"),
    [
        ("mac_k", {}, "const float* x, float* y"),
        ("cond", {}, "const float* x"),
        ("cond", {"USE_DOUBLE": ""}, "const double* x"),
        ("f", {}, "const float* x, float* y"),
        ("f", {"WEIGHTS": "2", "USE_DOUBLE": "1"}, "const float* x, const float* w, double* y"),
        ("f", {"FLAG": "1"}, "const float* x, int flag, float* y"),
    ],
)
def test_macros(name, defines, read):
    assert shown(MACROS, name, defines=defines) == f"({read})"


def test_device_pass_is_what_is_read():
    source = "#ifdef __CUDACC__\n__global__ void f(int a) {}\n#endif"
    assert shown(source) == "(int a)"
    assert shown("__global__ void f(const T* x) {}", defines={"T": "__half"}) == "(const __half* x)"


def test_kernel_switched_off():
    with pytest.raises(ValueError, match=r"Line 3 has `f\(.*#if conditions and defines="):
        parse_signature("#if 0\n\n__global__ void f(int a) {}\n#endif", "f")


def test_kernel_with_a_macro_from_a_header():
    source = '#include "c.h"\n__global__ void f(const float* RESTRICT x) {}'
    with pytest.raises(
        ValueError, match=r"u\.cu:2: .*`f` near `const float\* RESTRICT x`.*defines="
    ):
        parse_signature(source, "f", filename="u.cu")
    assert shown(source, defines={"RESTRICT": ""}) == "(const float* x)"


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("float& r", r"a reference, `r`: write `float r`"),
        ("const float& r", r"a reference, `r`.*`const float\* r`"),
        ("float&& r", "a reference"),
        ("float (&r)[4]", "a reference"),
        ("float** p", r"a pointer to pointers, `p`: write `float\* p`"),
        ("const float* const* p", "a pointer to pointers, `p`"),
        ("float* p[4]", "an array of arrays"),
        ("float m[3][4]", r"an array of arrays, `m`: write `float\* m`"),
        ("float (*m)[4]", "an array of arrays, `m`"),
        ("float (*g)(float)", "a function, `g`"),
        ("float g(float)", "a function, `g`"),
        ("cb g", "a function, `g`"),
        ("float*", r"without a name, of type `float\*`"),
        ("int", "without a name, of type `int`"),
        ("auto a", "type `auto`, `a`"),
        ("...", "a parameter pack"),
    ],
)
def test_unsupported_parameters(parameter, message):
    source = f"using cb = void (*)(int);\n__global__ void f(int n,\n  {parameter}) {{}}"
    with pytest.raises(TypeError, match=rf"u\.cu:3: `f` takes .*{message}.*params="):
        parse_signature(source, "f", filename="u.cu")
    assert len(list_kernels(source)) == 1


def test_pack_is_refused():
    for name in ("pack<>", "pack<int>", "pack<int, float>"):
        with pytest.raises(TypeError, match="a parameter pack, `rest`"):
            parse_signature(TEMPLATES, name)


@pytest.mark.parametrize(
    "parameters", ["const float x y", "int a int b", "int a,, int b", "int @a"]
)
def test_syntax_errors(parameters):
    source = f"__global__ void g(int n) {{}}\n__global__ void f({parameters}) {{}}"
    with pytest.raises(ValueError, match=r"u\.cu:2: cannot read the signature of `f`"):
        parse_signature(source, "f", filename="u.cu")
    assert shown(source, "g") == "(int n)"
    assert [k.name for k in list_kernels(source)] == ["g"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["__global__", "void", "f", "(", ")", "{", "}", "<", ">", ",", "*", "&",
             "const", "float", "int", "x", "template", "typename", "T", "=", "\"C\"",
             "extern", "#", "#define", "#if", "#endif", "\n", "\"", "'", "/*", "*/", "//",
             "\\", "using", ";", "::", "namespace", "[", "]", "R\"(", "é", "..."]
        ),
        max_size=40,
    )
)  # fmt: skip
def test_any_text_is_read_or_refused(words):
    source = " ".join(words)
    list_and_parse(source)
    list_and_parse(source + "\n__global__ void f(int a) {}")


@pytest.mark.parametrize("piece", ["(", "<", "[", "*", "A<", "A::", "template <", "#if 1\n", "(a"])
def test_deep_nesting_is_read_or_refused(piece):
    list_and_parse(f"__global__ void f(int {piece * 5000} x) {{}}")
    list_and_parse(f"{piece * 5000}\n__global__ void f(int x) {{}}")


def list_and_parse(source):
    message = "<source>"
    try:
        list_kernels(source)
        parse_signature(source, "f")
    except (ValueError, TypeError) as error:
        message = str(error)
    assert "<source>" in message


# ---- round trip ---------------------------------------------------------------------------------

SPACE = st.sampled_from([" ", "  ", "\n", " /* int z, */ ", " // ) {\n", "\t"])
BASES = st.sampled_from(
    ["bool", "char", "unsigned char", "int", "unsigned int", "long long",
     "unsigned long long", "float", "double", "__half", "__nv_bfloat16", "size_t",
     "std::int64_t", "float4", "dim3", "Params", "Vec<float, 3>",
     "ns::Pair<int, Vec<T, 2>>"]
)  # fmt: skip


@st.composite
def declarations(draw, name):
    """A parameter in one of the ways to write it, and what it is."""
    base, space = draw(BASES), draw(SPACE)
    if draw(st.booleans()):
        text = draw(
            st.sampled_from(["{b}{s}{n}", "const {b}{s}{n}", "{b}{s}const {n}", "{b} {n}{s}= 3"])
        )
        return text.format(b=base, s=space, n=name), Parameter(name, base, "value", False, False)
    const = draw(st.booleans())
    head = (
        draw(st.sampled_from(["const{s}{b}", "{b} const", "volatile {b}{s}const"]))
        if const
        else "{b}"
    )
    tail = draw(
        st.sampled_from(
            ["*{s}{n}", "{s}* const {n}", "* __restrict__{s}{n}", " {n}[]", " {n}{s}[4]"]
        )
    )
    text = (head + tail).format(b=base, s=space, n=name)
    return text, Parameter(name, base, "in" if const else "out", const, True)


@st.composite
def kernels(draw):
    """The source of some kernels, and their parameters."""
    source, wanted = "", []
    for k in range(draw(st.integers(1, 4))):
        names = [f"p{i}" for i in range(draw(st.integers(0, 6)))]
        parameters = [draw(declarations(name)) for name in names]
        head = draw(
            st.sampled_from(
                ["__global__ void", 'extern "C" __global__ void __launch_bounds__(64, 2)',
                 "static __global__ void", "namespace {} __global__\nvoid",
                 "// __global__ void f(\n__global__ __attribute__((used)) void"]
            )
        )  # fmt: skip
        space = draw(SPACE)
        source += (
            f"{head}{space}k{k}{space}({f',{space}'.join(t for t, _ in parameters)}){{ k(); }}\n"
        )
        wanted.append(tuple(p for _, p in parameters))
    return source, wanted


def bare(parameters):
    """Parameters without what the source says beyond their types."""
    return tuple(replace(p, layout=None, default=None) for p in parameters)


@settings(max_examples=200, deadline=None)
@given(kernels(), st.booleans())
def test_round_trip(drawn, macros):
    source, wanted = drawn
    source = "#define UNUSED\n" * macros + source
    read = list_kernels(source)
    assert [bare(k.parameters) for k in read] == wanted
    for kernel in read:
        signature = parse_signature(source, kernel.name)
        assert signature.parameters == kernel.parameters
        # What it prints is a declaration that reads the same.
        again = parse_signature(f"__global__ void {signature};", kernel.name)
        assert bare(again.parameters) == bare(kernel.parameters)


# ---- cost ---------------------------------------------------------------------------------------


def test_import_loads_no_grammar():
    code = (
        "import sys, jax_graphenc.signature\n"
        "assert not {'tree_sitter', 'tree_sitter_cuda', 'pcpp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- types --------------------------------------------------------------------------------------

INTEGERS = {
    ("char",): "int8",
    ("signed", "char"): "int8",
    ("unsigned", "char"): "uint8",
} | {
    (*sign, *length, *last): ("uint" if "unsigned" in sign else "int") + bits
    for sign in ((), ("signed",), ("unsigned",))
    for length, bits in ((("short",), "16"), ((), "32"), (("long",), "64"),
                         (("long", "long"), "64"))
    for last in ((), ("int",))
    if sign or length or last
}  # fmt: skip


@pytest.mark.parametrize("words", INTEGERS)
def test_integers_in_every_word_order(words):
    for order in itertools.permutations(words):
        assert dtype_of(" ".join(order)) == INTEGERS[words]
        assert dtype_of("const " + "  ".join(order)) == INTEGERS[words]


@pytest.mark.parametrize(
    ("spelling", "dtype"),
    [
        ("bool", np.bool_),
        ("size_t", np.uint64),
        ("std::size_t", np.uint64),
        ("ptrdiff_t", np.int64),
        ("int8_t", np.int8),
        ("::std::uint8_t", np.uint8),
        ("int16_t", np.int16),
        ("std::int32_t", np.int32),
        ("cuda::std::uint64_t", np.uint64),
        ("int64_t const", np.int64),
        ("uint", np.uint32),
        ("float", np.float32),
        ("volatile double", np.float64),
        ("half", np.float16),
        ("__half", np.float16),
        ("nv_bfloat16", ml_dtypes.bfloat16),
        ("__nv_bfloat16", ml_dtypes.bfloat16),
        ("__nv_fp8_e4m3", ml_dtypes.float8_e4m3fn),
        ("__nv_fp8_e5m2", ml_dtypes.float8_e5m2),
        ("__nv_fp8_e8m0", ml_dtypes.float8_e8m0fnu),
        ("cuComplex", np.complex64),
        ("cuFloatComplex", np.complex64),
        ("cuDoubleComplex", np.complex128),
        ("thrust::complex< float >", np.complex64),
        ("cuda::std::complex<double>", np.complex128),
        ("std::complex<float>", np.complex64),
    ],
)
def test_dtype_of(spelling, dtype):
    assert dtype_of(spelling) == np.dtype(dtype)
    assert element_of(spelling) == (np.dtype(dtype), 1)


@pytest.mark.parametrize(
    "spelling",
    ["", "void", "float4", "T", "{x}", "Params", "long double", "unsigned float", "short long",
     "long long long", "unsigned signed", "char int", "int int", "std::float", "std::half",
     "thrust::int8_t", "complex<float>", "std::complex<int>", "float*", "Vec<int>", "my::int8_t",
     "unsigned long long unsigned", "dim3", "const"],
)  # fmt: skip
def test_types_that_jax_does_not_have(spelling):
    assert dtype_of(spelling) is None


@pytest.mark.parametrize(
    "name",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
     "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
     "complex64", "complex128"],
)  # fmt: skip
def test_spelling_comes_back_as_its_dtype(name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    assert dtype_of(spelling_of(dtype)) == dtype
    assert shown(f"__global__ void f(const {spelling_of(dtype)}* x) {{}}") == (
        f"(const {spelling_of(dtype)}* x)"
    )


def test_spellings_and_headers():
    assert spelling_of(np.int8) == "signed char"
    assert spelling_of("int64") == "long long"
    assert spelling_of(np.uint64) == "unsigned long long"
    assert spelling_of(np.complex64) == "cuFloatComplex"
    assert header_of(np.float32) is None
    assert header_of(np.float16) == "cuda_fp16.h"
    assert header_of(ml_dtypes.bfloat16) == "cuda_bf16.h"
    assert header_of(ml_dtypes.float8_e5m2) == "cuda_fp8.h"
    assert header_of(np.complex128) == "cuComplex.h"
    for nothing in (ml_dtypes.float8_e4m3b11fnuz, "U4", ">f4", object):
        with pytest.raises(TypeError, match="CUDA C\\+\\+ has no type for dtype"):
            spelling_of(nothing)


@pytest.mark.parametrize("lanes", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("base", "dtype"),
    [("char", "int8"), ("uchar", "uint8"), ("short", "int16"), ("ushort", "uint16"),
     ("int", "int32"), ("uint", "uint32"), ("long", "int64"), ("ulong", "uint64"),
     ("longlong", "int64"), ("ulonglong", "uint64"), ("float", "float32"), ("double", "float64")],
)  # fmt: skip
def test_vectors(base, dtype, lanes):
    assert element_of(f"const {base}{lanes}") == (np.dtype(dtype), lanes)
    assert dtype_of(f"{base}{lanes}") is None


@pytest.mark.parametrize(
    ("spelling", "element"),
    [
        ("half2", (np.float16, 2)),
        ("__nv_bfloat162", (ml_dtypes.bfloat16, 2)),
        ("__nv_fp8x4_e4m3", (ml_dtypes.float8_e4m3fn, 4)),
        ("double4_32a", (np.float64, 4)),
        ("ulonglong4_16a", (np.uint64, 4)),
    ],
)
def test_packed_and_aligned_vectors(spelling, element):
    assert element_of(spelling) == (np.dtype(element[0]), element[1])


@pytest.mark.parametrize(
    "spelling", ["float5", "float4_16a", "double2_16a", "ufloat2", "dim3", "float", ""]
)
def test_what_is_no_vector(spelling):
    assert element_of(spelling) == ((np.dtype("float32"), 1) if spelling == "float" else None)

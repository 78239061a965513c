"""Copies of kernels that load by-value parameters from memory: what stands in them, and where."""

import re

import pytest

from jax_graphenc.signature.loaded import loaded_name, with_loaded_values


def copy_of(source, expression, line=1, **types):
    """What is added to a source, without its line directives."""
    whole = with_loaded_values(source, expression, types, line)
    rest = whole
    for part in re.split(r"\n#line \d+\n", whole)[::2]:
        assert part in source
        rest = rest.replace(part, "", 1)
    return re.sub(r"\n?#line \d+\n", "", rest).strip()


def test_a_value_is_loaded_before_the_body():
    source = 'extern "C" __global__ void f(float* x, float a, int n) { x[n] = a; } int other;'
    assert copy_of(source, "f", a="float") == (
        'extern "C" __global__ void f_loads_a(float* x, const float* a_at, int n) '
        "{ float a = (float)*a_at; x[n] = a; }"
    )


def test_several_values_of_a_template_in_a_namespace():
    source = """
namespace ns {
template <typename T>
__global__ void __launch_bounds__(256) scale(const T* x, T* out, const T a, unsigned int n) {
  if (n) out[0] = a;
}
}
"""
    assert loaded_name("ns::scale<float>", {"a": "T", "n": "int"}) == "ns::scale_loads_a_n<float>"
    copy = copy_of(source, "ns::scale<float>", a="float", n="int")
    assert copy.startswith(
        "template <typename T>\n__global__ void __launch_bounds__(256) scale_loads"
    )
    assert "const float* a_at, const int* n_at" in copy
    assert "T a = (T)*a_at; unsigned int n = (unsigned int)*n_at;" in copy


def test_lines_of_the_copy_and_behind_it_are_the_kernels():
    source = "\n\n__global__ void f(float* x, float a) {\n  x[0] = a;\n}\nint last;"
    lines = with_loaded_values(source, "f", {"a": "float"}, 10).split("\n")
    directives = {i: int(text.split()[1]) for i, text in enumerate(lines) if "#line" in text}
    (first, at_copy), (second, behind) = directives.items()
    assert (at_copy, lines[first + 1][:15]) == (12, "__global__ void")
    assert (behind, lines[second + 2]) == (14, "int last;")


def test_declarations_and_other_kernels_are_left_alone():
    source = (
        "__global__ void f(float* x, float a);\n__global__ void g(float* x, float a) {}\n"
        "__global__ void f(float* x, float a) {}\n"
    )
    assert copy_of(source, "f", a="float").count("__global__") == 1


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ('#include "f.cuh"', "does not stand in the source"),
        ("#define KERNEL(n) __global__ void n(float* x, float a) {}\nKERNEL(f)", "does not stand"),
        ("#define ARGS float* x, float a\n__global__ void f(ARGS) {}", "parameter 'a'"),
        ("__global__ void f(float* x, float (a)) {}", "parameter 'a'"),
    ],
)
def test_what_cannot_be_copied_is_refused(source, why):
    with pytest.raises(ValueError, match=why):
        with_loaded_values(source, "f", {"a": "float"}, 1)

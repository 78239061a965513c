"""Types and constants that a source declares, read from it."""

import pytest

from jax_graphenc.signature.constants import NotConstantError, evaluate
from jax_graphenc.signature.layouts import Enum
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

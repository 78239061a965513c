"""Known numbers fold to what XLA computes, for every operation, type and corner value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

from jax_graphenc.regions import scalars

pytestmark = pytest.mark.usefixtures("cpu")

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
QUICK = ("int32", "uint8", "float32", "bfloat16", "bool")


def each_of(dtypes):
    marks = {name: () if name in QUICK else pytest.mark.slow for name in dtypes}
    params = [pytest.param(name, marks=mark) for name, mark in marks.items()]
    return pytest.mark.parametrize("dtype", params)


def corners(dtype):
    dtype = jnp.dtype(dtype)
    if dtype.kind == "b":
        return np.array([False, True])
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        low, high = int(info.min), int(info.max)
        near = {low, low + 1, high, high - 1, *range(-3, 4), info.bits - 1, info.bits, high // 3}
        return np.array(sorted(n for n in near if low <= n <= high), dtype)
    info = jnp.finfo(dtype)
    positive = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 7.25, 100.7, 0.49999997, float(info.max), np.inf]
    return np.array([*positive, *(-x for x in positive), np.nan]).astype(dtype)


def folded(function, *operands):
    """A function's one equation, folded for each tuple of operands."""
    avals = [jax.ShapeDtypeStruct((), x.dtype) for x in operands]
    jaxpr = jax.make_jaxpr(function)(*avals).jaxpr
    (eqn,) = jaxpr.eqns
    made = []
    for numbers in zip(*operands, strict=True):
        given = iter(numbers)
        literals = [
            v if isinstance(v, core.Literal) else core.Literal(next(given), v.aval)
            for v in eqn.invars
        ]
        literal = scalars.fold(eqn, literals)
        assert literal.aval == eqn.outvars[0].aval
        made.append(literal.val)
    return np.array(made)


def check(functions, *columns):
    """Each function of every combination of the columns' values; compiled as one."""
    operands = [column.reshape(-1) for column in np.meshgrid(*columns, indexing="ij")]
    wanted = jax.jit(lambda *xs: {name: jax.vmap(f)(*xs) for name, f in functions.items()})
    for name, want in wanted(*operands).items():
        same(folded(functions[name], *operands), np.asarray(want), name)


def same(got, want, name):
    assert got.dtype == want.dtype, name
    if not jnp.issubdtype(want.dtype, jnp.floating):
        np.testing.assert_array_equal(got, want, name)
        return
    smallest = float(jnp.finfo(want.dtype).tiny)
    got, want = got.astype(np.float64), want.astype(np.float64)
    # XLA makes zeros of subnormal numbers on the CPU, and not on GPUs.
    got = np.where((abs(got) < smallest) & (want == 0), np.copysign(0, got), got)
    np.testing.assert_array_equal(got, want, name)
    signs = (np.signbit(x) & ~np.isnan(x) for x in (got, want))
    np.testing.assert_array_equal(*signs, name)


UNARY = {
    "neg": lax.neg,
    "sign": lax.sign,
    "square": lax.square,
    "copy": jnp.copy,
    "cube": lambda x: lax.integer_pow(x, 3),
    "power of 7": lambda x: lax.integer_pow(x, 7),
    "power of 0": lambda x: lax.integer_pow(x, 0),
}
COMPARISONS = {name: getattr(lax, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
BINARY = COMPARISONS | {
    name: getattr(lax, name) for name in ("add", "sub", "mul", "max", "min", "div", "rem")
}
LOGIC = {"and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor}
SHIFTS = {
    "left": lax.shift_left,
    "right, logical": lax.shift_right_logical,
    "right, arithmetic": lax.shift_right_arithmetic,
}
OF_BITS = {"not": lax.bitwise_not, "population_count": lax.population_count, "clz": lax.clz}
OF_FLOATS = {
    "abs": lax.abs,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "round": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round to even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "is_finite": lax.is_finite,
    "inverse": lambda x: lax.integer_pow(x, -1),
    "inverse cube": lambda x: lax.integer_pow(x, -3),
}


@each_of(INTEGERS)
def test_integers(dtype):
    with jax.enable_x64(True):
        values = corners(dtype)
        check(UNARY | OF_BITS | ({} if dtype[0] == "u" else {"abs": lax.abs}), values)
        check(BINARY | LOGIC | SHIFTS, values, values)


@each_of(FLOATS)
def test_floats(dtype):
    with jax.enable_x64(True):
        check(UNARY | OF_FLOATS, corners(dtype))
        check(BINARY, corners(dtype), corners(dtype))


def test_booleans():
    values = corners("bool")
    check({"not": lax.bitwise_not}, values)
    check(LOGIC | COMPARISONS | {"max": lax.max, "min": lax.min}, values, values)


@pytest.mark.parametrize("dtype", ["bool", "int32", "uint8", "float32", "bfloat16"])
def test_selection(dtype):
    values = corners(dtype)
    check({"select": lax.select_n}, corners("bool"), values, values)
    check({"choose": lax.select_n}, np.arange(3, dtype=np.int32), values, values[:2], values[-1:])
    if dtype != "bool":
        check({"clamp": lax.clamp}, values, values, values)


@each_of([*INTEGERS, *FLOATS, "bool"])
def test_conversions(dtype):
    with jax.enable_x64(True):
        types = [jnp.dtype(to) for to in (*INTEGERS, *FLOATS, "bool") if to != dtype]
        made = {f"to {to}": lambda x, to=to: lax.convert_element_type(x, to) for to in types}
        if dtype != "bool":
            made |= {
                f"bits as {to}": lambda x, to=to: lax.bitcast_convert_type(x, to)
                for to in types
                if to.kind != "b" and to.itemsize == jnp.dtype(dtype).itemsize
            }
        check(made, corners(dtype))


@pytest.mark.parametrize(
    "function",
    [jnp.sin, jnp.sqrt, lambda x: lax.complex(x, x), lambda x: x.astype(jnp.float8_e4m3fn)],
)
def test_what_does_not_fold(function):
    jaxpr = jax.make_jaxpr(function)(jnp.float32(1)).jaxpr
    assert scalars.fold(jaxpr.eqns[-1], [core.Literal(np.float32(1), jaxpr.invars[0].aval)]) is None


def test_arrays_and_unknown_numbers_do_not_fold():
    jaxpr = jax.make_jaxpr(lambda x, n: (x + x, n + 1))(jnp.ones(1), 1).jaxpr
    array, scalar = jaxpr.eqns
    assert scalars.fold(array, [core.Literal(np.ones(1), array.invars[0].aval)] * 2) is None
    assert scalars.fold(scalar, scalar.invars) is None

"""What a region is lowered to: how many custom calls, what is in them, what splits them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc import _core

SOURCE = r"""
extern "C" __global__ void axpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
extern "C" __global__ void bump(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += 1;
}
extern "C" __global__ void add_index(const float* x, const int* i, float* out, int n) {
  int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < n) out[k] = x[k] + *i;
}
"""


def kernel(name, **options):
    return jge.cuda_kernel(
        SOURCE, name, grid=lambda x, *_, **__: jge.cdiv(x.size, 64), block=64, **options
    )


axpy_raw = kernel(
    "axpy", out_shape=lambda x, *_, **__: x, reference=lambda x, y, *, a, n: a * x + y
)
bump_raw = kernel("bump", params={"x": "inout"})
add_index_raw = kernel("add_index", out_shape=lambda x, *_, **__: x)


def axpy(x, y, a=2.0):
    return axpy_raw(x, y, a=a, n=x.size)


def bump(x):
    return bump_raw(x, n=x.size)


def add_index(x, i):
    return add_index_raw(x, jnp.asarray(i, jnp.int32), n=x.size)


def calls(f, *args):
    """The custom calls and copies of a compiled function, and what its programs hold."""
    text = jax.jit(f).lower(*args).compile().as_text()
    programs = text.count('custom_call_target="jax_graphenc.')
    copies = text.count(" copy(") + text.count(" copy-start(")
    return programs, copies


def node_counts(f, *args):
    """Nodes of each program that runs, in order."""
    compiled = jax.jit(f).lower(*args).compile()
    jax.block_until_ready(compiled(*args))
    jge.reset_stats()
    jax.block_until_ready(compiled(*args))
    return jge.stats()["nodes"]


X = jnp.arange(300, dtype=jnp.float32)
ONE = jnp.ones(300, jnp.float32)


def steps(x, y, count=200):
    for i in range(count):
        x = axpy(x, y, a=1.0 + i % 3 * 0.001)
    return x


def test_a_region_of_200_kernels_is_one_custom_call_without_copies():
    assert calls(jge.graph(steps), X, ONE) == (1, 0)
    want = jax.jit(steps)(X, ONE)
    np.testing.assert_allclose(jge.graph(steps)(X, ONE), want, rtol=1e-6)


def interrupted(x, y):
    x = steps(x, y, 10)
    x = jnp.sin(x)
    return steps(x, y, 10)


def test_what_xla_does_between_splits_in_two():
    assert calls(jge.graph(interrupted), X, ONE)[0] == 2
    np.testing.assert_allclose(
        jge.graph(interrupted)(X, ONE), jax.jit(interrupted)(X, ONE), rtol=1e-6
    )


def test_strict_names_what_splits_with_its_line():
    with pytest.raises(jge.GraphBreakError, match=r"sin: .*test_graph.py:\d+.*interrupted"):
        jge.graph(interrupted, strict=True)(X, ONE)
    assert jge.graph(steps, strict=True)(X, ONE).shape == X.shape


def test_strict_names_nothing_that_splits_nothing():
    def f(x, y):
        first = axpy(jnp.exp(x), y)  # before the kernels
        joined = jnp.concatenate([jnp.sin(first), first])  # one operation, and what joins it
        second = axpy(joined[:300], y)
        return second, jnp.cos(first), jnp.tan(second), jnp.log(y) + axpy(jnp.sqrt(y), y)

    with pytest.raises(jge.GraphBreakError) as error:
        jge.graph(f, strict=True)(X, ONE)
    named = [line.split(":")[0] for line in str(error.value).splitlines() if line[:2] == "  "]
    assert named == ["  sin"]


def test_strict_names_what_effects_put_between_kernels():
    def f(x):
        jax.debug.callback(lambda x: None, bump(x)[0])
        out = jax.ShapeDtypeStruct(x.shape, x.dtype)
        # It does not read the kernel's result, but has to wait for a callback that does.
        return bump(jax.experimental.io_callback(lambda x: x, out, x))

    with pytest.raises(jge.GraphBreakError) as error:
        jge.graph(f, strict=True)(X)
    assert "  debug_callback: " in str(error.value)
    assert "  io_callback: " in str(error.value)


def test_strict_names_a_loop_that_cannot_be_unrolled():
    def f(x, n):
        return jax.lax.fori_loop(0, n, lambda i, u: bump(u), x)

    with pytest.raises(jge.GraphBreakError, match="while, a loop or branch"):
        jge.graph(f, strict=True)(X, 3)


def test_independent_work_around_a_foreign_operation_stays_together():
    # Both chains are one program before, and one after.
    def f(x, y):
        a, b = axpy(x, y), axpy(y, x)
        return axpy(jnp.sin(a), y), axpy(b, b)

    assert calls(jge.graph(f), X, ONE)[0] == 2


@pytest.mark.parametrize("length", [1, 7])
def test_counted_loops_unroll(length):
    def f(x, y):
        return jax.lax.fori_loop(0, length, lambda i, u: axpy(u, y, a=0.5), x)

    assert calls(jge.graph(f), X, ONE) == (1, 0)
    assert node_counts(jge.graph(f), X, ONE) == length
    np.testing.assert_allclose(jge.graph(f)(X, ONE), jax.jit(f)(X, ONE), rtol=1e-6)


def test_a_loop_counter_that_a_kernel_reads_is_known():
    def f(x):
        return jax.lax.fori_loop(-2, 6, lambda i, u: add_index(u, 3 * i // 2 - i % 3), x)

    assert calls(jge.graph(f), X) == (1, 0)
    np.testing.assert_allclose(jge.graph(f)(X), X + sum(3 * i // 2 - i % 3 for i in range(-2, 6)))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("bound", [4096, 6, 2])
def test_scan_reads_and_stacks_without_copies(reverse, bound):
    rows = jnp.arange(7 * 64, dtype=jnp.float32).reshape(7, 64)

    def body(carry, row):
        carry = axpy(carry, row, a=0.5)
        return carry, (axpy(row, carry), carry)

    def f(x, rows):
        return jax.lax.scan(body, x, rows, reverse=reverse)

    with jge.options(max_unrolled_nodes=bound):
        if bound == 4096:
            assert calls(jge.graph(f), rows[0], rows)[0] == 1
        got = jge.graph(f)(rows[0], rows)
    want = jax.jit(f)(rows[0], rows)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, want)


def test_map_and_nested_loops_unroll():
    rows = jnp.arange(4 * 64, dtype=jnp.float32).reshape(4, 64)

    def f(rows):
        def inner(row):
            return jax.lax.fori_loop(0, 3, lambda i, u: add_index(u, i), row)

        return jax.lax.map(inner, rows)

    assert calls(jge.graph(f), rows)[0] == 1
    np.testing.assert_allclose(jge.graph(f)(rows), rows + 3)


def test_a_long_loop_is_one_loop_of_larger_steps():
    def f(x, y):
        return jax.lax.fori_loop(0, 1003, lambda i, u: axpy(u, y, a=0.5), x)

    with jge.options(max_unrolled_nodes=100):
        compiled = jax.jit(jge.graph(f)).lower(X, ONE).compile()
        text = compiled.as_text()
        assert text.count('custom_call_target="jax_graphenc.') == 2
        assert " while(" in text
        # Of what the caller keeps, once, before the loop.
        assert text.count("f32[300]{0} copy(") == 1
    np.testing.assert_allclose(compiled(X, ONE), jax.jit(f)(X, ONE), rtol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_of_larger_steps_carries_what_it_returns_of_its_counter(reverse):
    def body(carry, _):
        i, last, u = carry
        return (i + 1, i, axpy(u, ONE, a=0.5)), (i, last)

    def f(x):
        return jax.lax.scan(body, (0, x[1].astype(int), x), length=11, reverse=reverse)

    with jge.options(max_unrolled_nodes=4):
        assert calls(jge.graph(f), X)[0] == 2  # the loop's body, and the rest
        got = jge.graph(f)(X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, jax.jit(f)(X))


COUNTERS = {
    "i << 1": lambda i: i << 1,
    "i >> 1": lambda i: i >> 1,
    "(i - 4) >> 1": lambda i: (i - 4) >> 1,
    "i ** 2": lambda i: i**2,
    "2 ** i": lambda i: 2**i,
    "abs(i - 2)": lambda i: abs(i - 2),
    "(i - 3) // 2": lambda i: (i - 3) // 2,
    "(i - 3) % 3": lambda i: (i - 3) % 3,
    "divmod": lambda i: sum(divmod(i, 2)),
    "of floats": lambda i: jnp.round(i * 0.7).astype(int),
    "where": lambda i: jnp.where(i > 1, i, -i),
    "bits": lambda i: jax.lax.population_count(i) ^ 5,
    "unsigned": lambda i: jax.lax.bitcast_convert_type(i, jnp.uint32),
    "division by zero": lambda i: jax.lax.div(jnp.int32(7), i - 2),
    "remainder by zero": lambda i: jax.lax.rem(jnp.int32(7), i - 2),
    "the least by -1": lambda i: jax.lax.div(jnp.int32(-(2**31)), i - 3) >> 20,
    "of a function": jax.jit(lambda i: 3 * i + 1),
    "of a branch": lambda i: jax.lax.cond(i % 2 == 0, lambda: i, lambda: 7),
    "of a switch": lambda i: jax.lax.switch(i, [lambda: 1, lambda: 2, lambda: i * i]),
    "of another loop": lambda i: jax.lax.fori_loop(0, 3, lambda k, n: n + i * k, 0),
}


def test_all_arithmetic_on_counters_is_known():
    def f(x):
        def step(number):
            return lambda i, u: add_index(u, number(i))

        return {name: jax.lax.fori_loop(0, 4, step(c), x) for name, c in COUNTERS.items()}

    got = jge.graph(f, strict=True)(X)
    # Outside, so that the division's operands are data: XLA's compiler divides numbers itself.
    numbers = jax.jit(jax.vmap(lambda i: {name: c(i) for name, c in COUNTERS.items()}))(
        jnp.arange(4)
    )
    for name, of_i in numbers.items():
        np.testing.assert_array_equal(got[name], X + sum(map(float, of_i.astype(jnp.int32))), name)


def test_a_branch_that_a_counter_chooses_costs_nothing():
    def f(x, y):
        def body(i, u):
            return jax.lax.cond(i % 2 == 0, lambda: axpy(u, y), lambda: bump(bump(u)))

        return jax.lax.fori_loop(0, 5, body, x)

    assert node_counts(jge.graph(f, strict=True), X, ONE) == 7
    np.testing.assert_allclose(jge.graph(f)(X, ONE), jax.jit(f)(X, ONE), rtol=1e-6)


def test_strict_names_what_keeps_a_loop_from_being_unrolled():
    def f(x):
        def body(i, u):
            return add_index(u, jnp.sin(i * 1.0))

        return jax.lax.fori_loop(0, 4, body, x)

    def long(x):
        return jax.lax.fori_loop(0, 4, lambda i, u: add_index(u, i), x)

    with pytest.raises(jge.GraphBreakError, match=r"scan, a loop(.|\n)* sin: .*test_graph.py:\d+"):
        jge.graph(f, strict=True)(X)
    with (
        jge.options(max_unrolled_nodes=3),
        pytest.raises(jge.GraphBreakError, match="depends on its counter"),
    ):
        jge.graph(long, strict=True)(X)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_arithmetic_on_a_counter_is_xla_s():
    def f(x):
        def body(carry, _):
            i, big, u = carry
            rest = jax.lax.rem(i, jnp.int32(0))
            return (i + 1, big * 1e4, add_index(u, i % 3)), (rest, big.astype(jnp.int32))

        return jax.lax.scan(body, (0, jnp.float32(1), x), length=5)

    got, want = jge.graph(f)(X), jax.jit(f)(X)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_loops_over_data_keep_their_bodies_in_programs():
    def f(x, y):
        def cond(u):
            return u[0] < 5

        return jax.lax.while_loop(cond, lambda u: axpy(axpy(u, y, 1.0), y, 1.0), x)

    assert calls(jge.graph(f), X, ONE)[0] == 1
    np.testing.assert_allclose(jge.graph(f)(X, ONE), X + 6)


def test_branches_keep_their_bodies_in_programs():
    def f(which, x, y):
        return jax.lax.cond(which, lambda: steps(x, y, 3), lambda: steps(y, x, 4))

    for which in (True, False):
        np.testing.assert_allclose(
            jge.graph(f)(which, X, ONE), jax.jit(f)(which, X, ONE), rtol=1e-6
        )
    assert calls(jge.graph(f), True, X, ONE)[0] == 2


def test_constants_in_bodies_and_nested_regions():
    table = jnp.linspace(0, 1, 300)

    @jax.jit
    def helper(u):
        return axpy(u, table)

    @jge.graph
    def inner(u):
        return helper(helper(u))

    def f(x, n):
        x = inner(inner(x))
        return jax.lax.fori_loop(0, n, lambda i, u: inner(u), x)

    want = X
    for _ in range(8):
        want = 2 * want + table
    np.testing.assert_allclose(jge.graph(f)(X, 2), want, rtol=1e-6)


def test_views_and_pieces_cost_nothing():
    def f(x):
        halves = x.reshape(2, 150)
        a, b = halves[0], halves[1]
        pieces = [axpy(a, b), axpy(b, a), axpy(x[0:150], x[150:300])]
        return jnp.concatenate(pieces).reshape(3, 150)

    assert calls(jge.graph(f), X) == (1, 0)
    # x[150:] is 600 bytes in, which 16 does not divide: it is copied, and so is what ends up there.
    assert node_counts(jge.graph(f), X) == 5
    np.testing.assert_allclose(jge.graph(f)(X), jax.jit(f)(X), rtol=1e-6)


def barriers(f, *args):
    return jax.jit(f).lower(*args).as_text().count("optimization_barrier")


def mixed(x):
    return jnp.sum(axpy(jnp.sin(axpy(jnp.sin(x), x)), x))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: jax.grad(jge.graph(jax.checkpoint(f))),
        lambda f: jge.graph(jax.grad(jax.checkpoint(f))),
        lambda f: jax.grad(jge.graph(lambda x: jax.checkpoint(f)(x) + jnp.sum(axpy(x, x) * 0))),
    ],
    ids=["checkpoint inside", "grad inside", "beside a kernel"],
)
def test_what_a_checkpoint_computes_again_waits_behind_a_barrier(wrap):
    assert barriers(wrap(mixed), X) >= 1
    np.testing.assert_allclose(wrap(mixed)(X), jax.grad(mixed)(X), rtol=1e-5)


def test_a_checkpoint_that_prevents_nothing_has_no_barrier():
    assert barriers(jax.grad(jge.graph(jax.checkpoint(mixed, prevent_cse=False))), X) == 0


def test_a_barrier_between_kernels_splits_nothing():
    def f(x, y):
        u, v = jax.lax.optimization_barrier((axpy(x, y), jnp.cos(y)))
        u, v, w = jax.lax.optimization_barrier((axpy(u, v), axpy(v, u), 2.0))
        return axpy(u, v) * w

    assert calls(jge.graph(f, strict=True), X, ONE)[0] == 1
    np.testing.assert_allclose(jge.graph(f)(X, ONE), jax.jit(f)(X, ONE), rtol=1e-6)
    # Where XLA goes on, it is XLA's.
    assert barriers(jge.graph(f), X, ONE) == 1


def test_an_argument_that_is_updated_in_place_through_views():
    def f(x, i):
        return bump(x.reshape(3, 100)), bump(jax.lax.bitcast_convert_type(i[None], jnp.float32))

    i = jax.lax.bitcast_convert_type(X, jnp.int32)
    assert node_counts(jge.graph(f), X, i) == 2
    jax.tree.map(
        np.testing.assert_array_equal, jge.graph(f)(X, i), ((X + 1).reshape(3, 100), X[None] + 1)
    )


def test_stacked_results_are_written_where_they_end_up():
    def f(x):
        return bump(jnp.stack([axpy(x, ONE), axpy(ONE, x)]))

    assert calls(jge.graph(f), X) == (1, 0)
    assert node_counts(jge.graph(f), X) == 3
    np.testing.assert_allclose(jge.graph(f)(X), jax.jit(f)(X))


def test_constants_are_filled_where_they_are_needed():
    def f(x):
        return axpy(jnp.zeros_like(x), axpy(x, jnp.full(300, 2.5)))

    assert calls(jge.graph(f), X) == (1, 0)
    np.testing.assert_allclose(jge.graph(f)(X), 2 * X + 2.5)


def test_sums_of_cotangents_do_not_split():
    product = kernel("axpy", out_shape=lambda x, *_, **__: x)
    product.defvjp(
        lambda x, y, *, a, n: (product(x, y, a=a, n=n), None),
        lambda _, g, *, a, n: (product(g, jnp.zeros_like(g), a=a, n=n), g),
    )

    def f(x):
        for _ in range(4):
            x = product(x, x, a=2.0, n=x.size)
        return x

    def gradient(x, g):
        return jax.vjp(jge.graph(f), x)[1](g)[0]

    assert calls(gradient, X, ONE) == (1, 0)
    np.testing.assert_allclose(gradient(X, ONE), 81 * ONE)


def test_a_derivative_in_forward_mode_is_one_program():
    with_axpy = kernel("axpy", out_shape=lambda x, *_, **__: x)
    with_axpy.defjvp(
        lambda p, t, *, a, n: (with_axpy(*p, a=a, n=n), with_axpy(*t, a=a, n=n)),
    )

    def chain(x):
        for _ in range(5):
            x = with_axpy(x, x, a=0.5, n=x.size)
        return x

    assert calls(lambda x: jax.jvp(jge.graph(chain), (x,), (x,)), X)[0] == 1


def test_results_that_are_arguments_views_or_repeated():
    def f(x, y):
        made = axpy(x, y)
        return x, made, made, made.reshape(3, 100), made[100:200], jnp.zeros(3), 1.5

    got = jge.graph(f)(X, ONE)
    want = jax.jit(f)(X, ONE)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, want)


def test_inner_values_without_elements_need_no_memory():
    source = r"""
    extern "C" __global__ void both(const float* x, const float* none, float* out, float* empty) {
      out[threadIdx.x] = x[threadIdx.x] + 1;
    }
    """
    both = jge.cuda_kernel(source, "both", out_shape=lambda *xs: xs, grid=1, block=300)

    def f(x, none):
        a, empty = both(x, none)
        return a, both(a, empty)

    got = jge.graph(f)(X, jnp.zeros((0, 3)))
    jax.tree.map(np.testing.assert_array_equal, got, (X + 1, (X + 2, jnp.zeros((0, 3)))))


def test_scratch_memory_is_counted_and_reused_as_asked():
    sizes = {}
    for reuse in ("path", "order", "never"):
        with jge.options(scratch_reuse=reuse):
            jge.reset_stats()
            jax.jit(jge.graph(lambda x: (steps(x, ONE, 5), steps(x, X, 5)))).lower(X).compile()
            sizes[reuse] = jge.stats()["scratch_bytes"]
    assert sizes["order"] < sizes["path"] < sizes["never"]


def test_the_memory_of_a_program_is_described():
    f = jge.graph(lambda x: steps(x, ONE, 3))
    text = jax.jit(f).lower(X).as_text()
    assert "jax_graphenc" in text
    assert _core.PROGRAM_VERSION == 2


def test_a_region_of_1000_nodes_is_small_in_the_program():
    text = jax.jit(jge.graph(lambda x: steps(x, ONE, 1000))).lower(X).as_text()
    assert len(text) < 1_500_000

"""What jax.vmap makes of a kernel, by each method: values, launches, and the order between them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.primitives import kernel
from jax_graphenc.primitives.kernel import kernel_p

SOURCE = r"""
extern "C" __global__ void axpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[blockIdx.z * n + i] = a * x[blockIdx.z * n + i] + y[blockIdx.z * n + i];
}
extern "C" __global__ void shift(const float* x, const float* y, float* out, int n, int m) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[blockIdx.z * n + i] = x[blockIdx.z * n + i] + y[i];
}
extern "C" __global__ void bump(float* u, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) u[blockIdx.z * n + i] += x[blockIdx.z * n + i];
}
extern "C" __global__ void sums(const float* x, float* total, float* twice, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    atomicAdd(&total[blockIdx.z], x[blockIdx.z * n + i]);
    twice[blockIdx.z * n + i] = 2 * x[blockIdx.z * n + i];
  }
}
"""
N = 16


def make(name, **options):
    return jge.cuda_kernel(
        SOURCE,
        name,
        # The batch is the grid's z axis, of size 1 where the kernel sees one element.
        grid=lambda x, *_, n, **__: (jge.cdiv(n, 8), 1, x.size // n),
        block=8,
        **{"out_shape": lambda x, *_, **__: x, **options},
    )


def make_axpy(**options):
    kernel = make("axpy", **options)
    return lambda x, y: kernel(x, y, a=2.0, n=x.shape[-1])


def make_bump(**options):
    kernel = make("bump", out_shape=None, params={"u": "inout"}, **options)
    return lambda u, x: kernel(u, x, n=u.shape[-1])


def make_sums(**options):
    kernel = make(
        "sums",
        out_shape=lambda x, n: (jax.ShapeDtypeStruct((), jnp.float32), x),
        zero_init="total",
        **options,
    )
    return lambda x: kernel(x, n=x.shape[-1])


axpy, bump, sums = make_axpy(), make_bump(), make_sums()


def axpy_in_numpy(x, y):
    return 2 * x + y


def sums_in_numpy(x):
    return jnp.sum(x), 2 * x


def numbers(*shape):
    return jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape)


def check(got, want):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), got, want)


def equations(f, *args):
    """All equations of a function's jaxpr, nested ones too."""

    def walk(jaxpr):
        for eqn in jaxpr.eqns:
            yield eqn
            for sub in jax.extend.core.jaxprs_in_params(eqn.params):
                yield from walk(sub)

    return list(walk(jax.make_jaxpr(f)(*args).jaxpr))


def kernel_calls(f, *args):
    return [e.params["call"] for e in equations(f, *args) if e.primitive is kernel_p]


def programs(f, *args):
    """Custom calls of a compiled function."""
    text = jax.jit(f).lower(*args).compile().as_text()
    return text.count('custom_call_target="jax_graphenc.')


def node_count(f, *args):
    """Nodes that a call of a compiled function runs."""
    args = jax.device_put(args, jax.devices("cpu")[0])  # where XLA captures nothing
    compiled = jax.jit(f).lower(*args).compile()
    jax.block_until_ready(compiled(*args))
    jge.reset_stats()
    with jge.options(use_graphs=False):
        jax.block_until_ready(compiled(*args))
    return jge.stats()["nodes"]


def lowered_program(monkeypatch, f, *args):
    """The one program that a function is lowered to, decoded."""
    seen = []
    emit = kernel.emit

    def spy(ctx, operands, made, **rest):
        seen.append(made)
        return emit(ctx, operands, made, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "emit", spy)
        jax.jit(lambda *xs: f(*xs)).lower(*args)
    (made,) = seen
    return _core.describe_program(made.encode())


def kinds(program):
    """``"kernel"``, ``"memset"`` or ``"memcpy"`` for each node."""
    known = ("kernel", "memset", "memcpy")
    return [next(k for k in known if k in node) for node in program["nodes"]]


def edges(program):
    return [(before, i) for i, n in enumerate(program["nodes"]) for before in n["dependencies"]]


# ---------------------------------------------------------------------- nodes


def test_a_batch_is_as_many_nodes_without_edges_in_one_program(monkeypatch):
    x, y = numbers(5, N), numbers(5, N) + 1
    f = jax.vmap(axpy)
    check(jax.jit(f)(x, y), axpy_in_numpy(x, y))
    check(f(x, y), axpy_in_numpy(x, y))
    assert programs(f, x, y) == 1
    assert node_count(f, x, y) == 5
    program = lowered_program(monkeypatch, f, x, y)
    assert edges(program) == []


def test_nested_batches_are_one_program_and_what_is_not_batched_is_shared(monkeypatch):
    x, y = numbers(3, N), numbers(4, N) + 1
    f = jax.vmap(jax.vmap(axpy, (None, 0)), (0, None))
    check(jax.jit(f)(x, y), 2 * x[:, None] + y[None])
    (call,) = kernel_calls(f, x, y)
    assert call.batch == ((3, (True, False)), (4, (False, True)))
    program = lowered_program(monkeypatch, f, x, y)
    assert kinds(program) == ["kernel"] * 12
    assert edges(program) == []
    one = 4 * N
    assert [node["buffers"] for node in program["nodes"]] == [
        [(0, i * one, one), (1, j * one, one), (2, (4 * i + j) * one, one)]
        for i in range(3)
        for j in range(4)
    ]


def test_three_levels_in_any_order():
    x, y = numbers(2, N, 3), numbers(N, 4, 3)
    f = jax.vmap(jax.vmap(jax.vmap(axpy, (0, None)), (None, 1)), (-1, -1), 1)
    want = 2 * jnp.einsum("inb->bin", x)[:, None] + jnp.einsum("njb->bjn", y)[:, :, None]
    check(jax.jit(f)(x, y), jnp.moveaxis(want, 0, 1))
    assert programs(f, x, y) == 1


@pytest.mark.parametrize(
    ("in_axes", "out_axes"), [((1, 0), 0), ((1, None), 1), ((-1, 1), -1), ((None, 1), 1)]
)
def test_other_axes(in_axes, out_axes):
    x, y = numbers(3, N), numbers(3, N) + 1
    x, y = (
        x[0] if axis is None else jnp.moveaxis(x, 0, axis)
        for x, axis in zip((x, y), in_axes, strict=True)
    )
    got, want = (jax.vmap(f, in_axes, out_axes) for f in (axpy, axpy_in_numpy))
    check(jax.jit(got)(x, y), want(x, y))


def test_elements_that_are_not_aligned_are_copied_and_others_are_not(monkeypatch):
    # 12 bytes each: of 16, only every fourth begins at a multiple of 16.
    x, y = numbers(5, 3), numbers(3)
    f = jax.vmap(axpy, (0, None))
    check(jax.jit(f)(x, y), axpy_in_numpy(x, y))
    program = lowered_program(monkeypatch, f, x, y)
    # Elements 0 and 4 of x and of the result are in place; y is never copied.
    assert kinds(program).count("kernel") == 5
    assert kinds(program).count("memcpy") == 6
    assert all(
        offset % 16 == 0
        for node in program["nodes"]
        if "kernel" in node
        for _, offset, _ in node["buffers"]
    )
    f = jax.vmap(make_axpy(alignment=4), (0, None))
    check(jax.jit(f)(x, y), axpy_in_numpy(x, y))
    assert kinds(lowered_program(monkeypatch, f, x, y)) == ["kernel"] * 5


@pytest.mark.parametrize("n", [N, 3], ids=["aligned", "not aligned"])
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
def test_in_place(n, axes):
    u, x = numbers(5, n), numbers(5, n) + 1
    u, x = (v if axis == 0 else v[0] for v, axis in zip((u, x), axes, strict=True))
    f = jax.vmap(bump, axes)
    before = np.array(u)
    check(jax.jit(f)(u, x), u + x)
    check(f(u, x), u + x)
    np.testing.assert_array_equal(u, before)
    assert programs(f, u, x) == 1
    check(jax.jit(jge.graph(f))(u, x), u + x)
    if axes[0] == 0:
        check(jax.jit(f, donate_argnums=0)(u + 0, x), u + x)
    # Half of the levels.
    both = jax.vmap(jax.vmap(bump, (0, None)), (None, 0))
    check(jax.jit(both)(numbers(2, n), numbers(3, n)), numbers(2, n) + numbers(3, 1, n))


def test_an_element_that_is_shared_and_updated_is_copied_within_the_program(monkeypatch):
    program = lowered_program(monkeypatch, jax.vmap(bump, (None, 0)), numbers(N), numbers(3, N))
    assert sorted(kinds(program)) == ["kernel"] * 3 + ["memcpy"] * 3
    assert len(edges(program)) == 3


def test_zeroed_outputs_and_several_of_them(monkeypatch):
    # An element of `total` is one number, which needs no more than its own alignment.
    x = numbers(5, N)
    f = jax.vmap(sums)
    check(jax.jit(f)(x), jax.vmap(sums_in_numpy)(x))
    assert sorted(kinds(lowered_program(monkeypatch, f, x))) == ["kernel"] * 5 + ["memset"]


def test_a_region_of_batches_is_one_program():
    def two(x, y):
        return axpy(axpy(x, y), y)

    x, y = numbers(4, N), numbers(N)
    for f in (jge.graph(jax.vmap(two, (0, None))), jax.vmap(jge.graph(two), (0, None))):
        check(jax.jit(f)(x, y), 4 * x + 3 * y)
        assert programs(f, x, y) == 1
        assert node_count(f, x, y) == 8


def test_no_elements():
    x, y = numbers(0, N), numbers(N)
    for method in ("nodes", "sequential", "expand_dims", "broadcast_all"):
        got = jax.jit(jax.vmap(make_axpy(vmap=method), (0, None)))(x, y)
        assert (got.shape, got.dtype) == ((0, N), jnp.float32)
    nested = jax.vmap(jax.vmap(axpy, (None, 0)), (0, None))
    assert jax.jit(nested)(numbers(2, N), x).shape == (2, 0, N)
    assert jax.jit(nested)(x, numbers(2, N)).shape == (0, 2, N)


# ---------------------------------------------------------------------- the bound


@pytest.mark.parametrize(
    ("size", "steps"),
    [(6, [6]), (7, [4, 3]), (12, [6]), (13, [5, 3]), (14, [5, 4]), (1, [1])],
    ids=str,
)
def test_beyond_the_bound_a_batch_is_a_loop_of_as_few_programs_as_can_be(size, steps):
    with jge.options(max_batch_nodes=6):
        x, y = numbers(size, N), numbers(N)
        f = jax.vmap(axpy, (0, None))
        check(jax.jit(f)(x, y), axpy_in_numpy(x, y))
        assert node_count(f, x, y) == size
        calls = kernel_calls(f, x, y)
        assert [call.batch for call in calls] == [((n, (True, False)),) for n in steps]


def test_the_bound_is_on_all_levels():
    x, y = numbers(5, N), numbers(4, N)
    f = jax.vmap(jax.vmap(axpy, (None, 0)), (0, None))
    want = 2 * x[:, None] + y[None]
    for bound, sizes in ((20, [5, 4]), (19, [3, 4]), (4, [4]), (3, [2]), (1, [])):
        jax.clear_caches()  # f is traced anew
        with jge.options(max_batch_nodes=bound):
            check(jax.jit(f)(x, y), want)
            call = kernel_calls(f, x, y)[0]
            assert [n for n, _ in call.batch] == sizes
            assert node_count(f, x, y) == 20


def test_the_bound_in_force_is_the_one_when_a_call_is_traced():
    x, y = numbers(8, N), numbers(N)
    for bound, count in ((8, 1), (4, 2), (8, 1)):
        with jge.options(max_batch_nodes=bound):
            scans = [
                e for e in equations(jax.vmap(axpy, (0, None)), x, y) if e.primitive.name == "scan"
            ]
            assert len(scans) == count - 1


def test_the_default_bound():
    x, y = numbers(300, 4), numbers(4)
    f = jax.vmap(axpy, (0, None))
    check(jax.jit(f)(x, y), axpy_in_numpy(x, y))
    (call,) = kernel_calls(f, x, y)
    assert call.batch[0][0] == 150


def test_a_large_batch_in_a_region():
    x, y = numbers(30, N), numbers(N)
    with jge.options(max_batch_nodes=8):
        f = jge.graph(jax.vmap(lambda x, y: axpy(axpy(x, y), y), (0, None)))
        check(jax.jit(f)(x, y), 4 * x + 3 * y)
        assert programs(f, x, y) == 1
        assert node_count(f, x, y) == 60


def test_a_region_of_many_elements_that_are_not_aligned_is_cut_before_it_is_too_large():
    x, y = numbers(250, 3), numbers(3)

    def many(f):
        def run(x, y):
            for _ in range(60):
                x = f(x, y)
            return x

        return run

    f = jax.jit(jge.graph(jax.vmap(many(axpy), (0, None))))
    check(f(x, y), many(axpy_in_numpy)(x, y))
    assert programs(f, x, y) == 4


# ---------------------------------------------------------------------- other methods

METHODS = ("nodes", "sequential", "expand_dims", "broadcast_all")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cpu", ["source", "reference"])
@pytest.mark.parametrize("wrap", [lambda f: f, jge.graph], ids=["alone", "region"])
def test_every_method_gives_what_jax_numpy_gives(method, cpu, wrap):
    options = {"vmap": method, "cpu": cpu}
    f = wrap(make_axpy(**options, reference=lambda x, y, *, a, n: a * x + y))
    x, y = numbers(3, N), numbers(3, N) + 1
    check(jax.jit(jax.vmap(f))(x, y), axpy_in_numpy(x, y))
    check(jax.jit(jax.vmap(jax.vmap(f), 1, 1))(x[None], y[None]), axpy_in_numpy(x, y)[None])
    check(jax.vmap(f, 1, 1)(x.T, y.T), axpy_in_numpy(x, y).T)

    # A reference is one of an element, whatever the method: this one sums all it sees.
    g = wrap(make_sums(**options, reference=lambda x, *, n: (jnp.sum(x), 2 * x)))
    check(jax.jit(jax.vmap(g))(x), jax.vmap(sums_in_numpy)(x))
    h = wrap(make_bump(**options, reference=lambda u, x, *, n: u + x))
    check(jax.jit(jax.vmap(h))(x, y), x + y)
    # An input that is updated in place is repeated where the batch is not in it.
    if method != "expand_dims":
        check(jax.jit(jax.vmap(h, (None, 0)))(x[0], y), x[0] + y)
        check(jax.jit(jax.vmap(f, (None, 0)))(x[0], y), axpy_in_numpy(x[0], y))


def test_broadcast_all_is_one_launch_with_all_inputs_repeated():
    f = make_axpy(vmap="broadcast_all")
    x, y = numbers(3, N), numbers(4, N)
    nested = jax.vmap(jax.vmap(f, (None, 0)), (0, None))
    check(jax.jit(nested)(x, y), 2 * x[:, None] + y[None])
    (call,) = kernel_calls(nested, x, y)
    assert (call.grid, call.batch) == ((2, 1, 12), ())
    assert call.results == (((3, 4, N), jnp.float32),)
    assert node_count(nested, x, y) == 1


@pytest.mark.parametrize("cpu", ["source", "reference"])
def test_expand_dims_leaves_a_dimension_of_one(cpu):
    seen = []

    def grid(x, y, *, n, m):
        seen.append((x.shape, y.shape))
        return (jge.cdiv(n, 8), 1, x.size // n)

    kernel = jge.cuda_kernel(
        SOURCE,
        "shift",
        out_shape=lambda x, *_, **__: x,
        grid=grid,
        block=8,
        vmap="expand_dims",
        reference=lambda x, y, *, n, m: x + y,
        cpu=cpu,
    )
    x, y = numbers(3, N), numbers(N)
    f = jax.vmap(lambda x, y: kernel(x, y, n=N, m=0), (0, None))
    check(jax.jit(f)(x, y), x + y)
    assert seen == [((N,), (N,)), ((3, N), (1, N))]
    nested = jax.vmap(f, (0, None))
    check(jax.jit(nested)(x[None] * 2, y), x[None] * 2 + y)
    assert seen[-1] == ((1, 3, N), (1, 1, N))
    bumped = jax.vmap(make_bump(vmap="expand_dims"), (None, 0))
    check(jax.jit(bumped)(y, x), x + y)


SCALED = [
    ("both", lambda f: jax.vmap(f)),
    ("the value alone", lambda f: jax.vmap(f, (None, 0))),
    ("outer array, inner value", lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None))),
    ("outer value, inner array", lambda f: jax.vmap(jax.vmap(f, (0, None)), (None, 0))),
    ("outer both, inner array", lambda f: jax.vmap(lambda x, a: jax.vmap(f, (0, None))(x, a))),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cpu", ["source", "reference"])
@pytest.mark.parametrize("wrap", [lambda f: f, jge.graph], ids=["alone", "region"])
def test_a_mapped_value_is_each_elements_own(method, cpu, wrap):
    kernel = make("axpy", vmap=method, cpu=cpu, reference=lambda x, y, *, a, n: a * x + y)
    x, a = numbers(3, N) + 1, jnp.array([1.0, 2.0, 3.0])

    def f(x, a):
        return kernel(x, x, a=a, n=N)

    arrays = {name: x for name, _ in SCALED}
    arrays["the value alone"] = x[0]
    arrays["outer both, inner array"] = jnp.stack([x, 2 * x]).swapaxes(0, 1)

    @functools.partial(jax.jit, static_argnums=0)
    def all_of(f, arrays, a):
        return {name: mapped(f)(arrays[name], a) for name, mapped in SCALED}

    got, want = all_of(wrap(f), arrays, a), all_of(lambda x, a: a * x + x, arrays, a)
    for name, result in got.items():
        np.testing.assert_allclose(result, want[name], err_msg=name)
    grads = jax.vmap(jax.grad(lambda x, a: wrap(f)(x, a).sum(), (0, 1)))(x, a)
    check(grads, (jnp.broadcast_to(a[:, None] + 1, x.shape), x.sum(1)))


@pytest.mark.parametrize("method", ["expand_dims", "broadcast_all"])
def test_a_value_that_is_not_mapped_leaves_one_launch(method):
    kernel = make("axpy", vmap=method)
    x = numbers(3, N)

    def f(x, a):
        return jax.vmap(lambda x: kernel(x, x, a=a, n=N))(x)

    check(jax.jit(f)(x, 2.0), 3 * x)
    assert node_count(f, x, 2.0) == 1
    assert node_count(lambda x, a: jax.vmap(f, (None, 0))(x, a), x, jnp.arange(4.0)) == 4


def test_a_launch_that_cannot_be_computed_for_a_batch_says_where():
    def grid(x, y, *, a, n):
        (size,) = x.shape
        return jge.cdiv(size, 8)

    f = jge.cuda_kernel(
        SOURCE, "axpy", out_shape=lambda x, *_, **__: x, grid=grid, block=8, vmap="broadcast_all"
    )
    with pytest.raises(ValueError, match="unpack") as caught:
        jax.vmap(lambda x: f(x, x, a=1.0, n=N))(numbers(3, N))
    assert any("in grid=" in note for note in caught.value.__notes__)
    assert any("in vmap='broadcast_all' of kernel 'axpy'" in n for n in caught.value.__notes__)


def test_none_refuses():
    f = make_axpy(vmap=None)
    with pytest.raises(NotImplementedError, match=r"'axpy' has no batching rule.*vmap=None"):
        jax.vmap(f)(numbers(3, N), numbers(3, N))


# ---------------------------------------------------------------------- a rule of the user's


def with_rule(rule, **options):
    return make_axpy(vmap=rule, **options)


def one_launch(size, in_batched, x, y, *, a, n):
    """The batch as the grid's z axis, as a rule of one's own would do it."""
    y = y if in_batched[1] else jnp.broadcast_to(y, (size, n))
    x = x if in_batched[0] else jnp.broadcast_to(x, (size, n))
    return make("axpy")(x, y, a=a, n=n), True


def test_a_rule_of_ones_own():
    seen = []

    def rule(size, in_batched, x, y, *, a, n):
        seen.append((size, in_batched, x.shape, y.shape, a, n))
        return one_launch(size, in_batched, x, y, a=a, n=n)

    f = with_rule(rule)
    x, y = numbers(3, N), numbers(N)
    mapped = jax.vmap(f, (0, None))
    check(jax.jit(mapped)(x, y), axpy_in_numpy(x, y))
    assert seen == [(3, [True, False], (3, N), (N,), 2.0, N)]
    check(jax.vmap(f, (None, 1), 1)(y, x.T), axpy_in_numpy(y, x).T)
    check(jax.jit(jge.graph(mapped))(x, y), axpy_in_numpy(x, y))
    check(jax.vmap(jge.graph(f), (0, None))(x, y), axpy_in_numpy(x, y))
    # Without a batch there is nothing to it.
    before = len(seen)
    check(f(y, y), 3 * y)
    assert len(seen) == before


def test_a_rule_whose_outputs_are_not_all_batched():
    def rule(size, in_batched, x, *, n):
        return [jnp.float32(7), 2 * x], [False, True]

    f = make_sums(vmap=rule)
    total, twice = jax.vmap(f, out_axes=(None, 0))(numbers(3, N))
    assert total == 7
    check(twice, 2 * numbers(3, N))


@pytest.mark.parametrize("transform", ["grad of vmap", "vmap of grad", "jvp of vmap", "checkpoint"])
@pytest.mark.parametrize("wrap", [lambda f: f, jge.graph], ids=["alone", "region"])
def test_derivatives_are_taken_before_a_rule(transform, wrap):
    f = wrap(with_rule(one_launch, reference=lambda x, y, *, a, n: a * x + y))
    x, y = numbers(3, N), numbers(3, N) + 1

    def run(f):
        if transform == "grad of vmap":
            return jax.grad(lambda x: jnp.sum(jax.vmap(f)(x, y) ** 2))(x)
        if transform == "vmap of grad":
            return jax.vmap(jax.grad(lambda x, y: jnp.sum(f(x, y) ** 2), (0, 1)))(x, y)
        if transform == "jvp of vmap":
            return jax.jvp(jax.vmap(f), (x, y), (y, x))
        return jax.grad(lambda x: jnp.sum(jax.checkpoint(jax.vmap(f))(x, y) ** 2))(x)

    check(run(f), run(axpy_in_numpy))
    check(jax.jit(lambda: run(f))(), run(axpy_in_numpy))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x, r"the rule returns .*\(outputs, out_batched\) is expected"),
        (lambda x: ((x, x), (True, True)), r"returns 2 outputs and says of 2 .* kernel has 1"),
        (lambda x: (x, ()), r"returns 1 outputs and says of 0"),
        (lambda x: (x, False), r"output 0 is float32\[3, 16\]; float32\[16\] is .* not batched"),
        (lambda x: (x[0], True), r"output 0 is float32\[16\]; float32\[3, 16\] is .* is batched"),
        (lambda x: (x.astype(int), True), r"output 0 is int32\[3, 16\]; float32\[3, 16\]"),
    ],
)
def test_what_a_rule_returns_is_checked(result, message):
    f = with_rule(lambda size, in_batched, x, y, **_: result(x))
    with pytest.raises(TypeError, match=rf"in vmap= of kernel 'axpy': .*{message}"):
        jax.vmap(f)(numbers(3, N), numbers(3, N))


def test_an_error_in_a_rule_names_the_kernel():
    def rule(size, in_batched, x, y):
        raise AssertionError("not reached: the keywords do not fit")

    with pytest.raises(TypeError, match="unexpected keyword") as caught:
        jax.vmap(with_rule(rule))(numbers(3, N), numbers(3, N))
    assert "in vmap= of kernel 'axpy'" in caught.value.__notes__


# ---------------------------------------------------------------------- derivatives


def test_derivatives_of_batches_and_batches_of_derivatives():
    f = make_axpy(reference=lambda x, y, *, a, n: a * x + y)
    x, y = numbers(3, N), numbers(3, N) + 1

    def loss(f):
        return lambda x, y: jnp.sum(f(x, y) ** 2)

    for wrap in (lambda f: f, jax.jit, jge.graph):
        check(
            wrap(jax.vmap(jax.grad(loss(f), (0, 1))))(x, y),
            jax.vmap(jax.grad(loss(axpy_in_numpy), (0, 1)))(x, y),
        )
        check(
            wrap(jax.grad(loss(jax.vmap(f)), (0, 1)))(x, y),
            jax.grad(loss(axpy_in_numpy), (0, 1))(x, y),
        )


@pytest.mark.parametrize("method", ["nodes", "sequential", "broadcast_all"])
def test_a_batch_without_a_derivative_names_the_kernel(method):
    f = make_axpy(vmap=method)
    with pytest.raises(NotImplementedError, match=r"'axpy' has no derivative.*reference="):
        jax.grad(lambda x: jnp.sum(jax.vmap(f)(x, x)))(numbers(3, N))
    with pytest.raises(NotImplementedError, match=r"'axpy' has no derivative.*reference="):
        jax.vmap(jax.grad(lambda x: jnp.sum(f(x, x))))(numbers(3, N))

"""Kernels on several devices: rules for XLA's partitioner, shard_map, threads; 8 CPU devices."""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import re
import sys
import threading
import warnings

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from other_process import start_on_cpu_devices

import jax_graphenc as jge
from jax_graphenc.calls import sharding_rule as sharding
from jax_graphenc.calls.values import Keywords
from jax_graphenc.kernels.prepare import prepare
from jax_graphenc.primitives.kernel import kernel_p

SOURCE = r"""
extern "C" __global__ void affine(const float* x, const float* w, float* out, int n, int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2 * x[i] + w[i % columns];
}
extern "C" __global__ void row_sums(const float* x, float* out, int rows, int columns) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  out[row] = 0;
  for (int i = 0; i < columns; i++) out[row] += x[row * columns + i];
}
extern "C" __global__ void grow(float* x, const float* w, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += w[0];
}
"""


def make_affine(**options):
    return jge.cuda_kernel(
        SOURCE,
        "affine",
        out_shape=lambda x, w, **_: x,
        grid=lambda x, w, n, **_: jge.cdiv(n, 64),
        block=64,
        values={"n": lambda x, w, **_: x.size, "columns": lambda x, w, **_: w.size},
        vmap="sequential",
        **{"reference": lambda x, w, **_: 2 * x + w, **options},
    )


def make_row_sums(rule, **options):
    return jge.cuda_kernel(
        SOURCE,
        "row_sums",
        out_shape=lambda x, **_: jax.ShapeDtypeStruct(x.shape[:1], x.dtype),
        grid=lambda x, **_: jge.cdiv(x.shape[0], 64),
        block=64,
        values={"rows": lambda x, **_: x.shape[0], "columns": lambda x, **_: x.shape[1]},
        sharding=rule,
        **options,
    )


def make_grow(rule):
    return jge.cuda_kernel(
        SOURCE,
        "grow",
        params={"x": "inout"},
        grid=lambda x, w, n: jge.cdiv(n, 64),
        block=64,
        values={"n": lambda x, w: x.size},
        sharding=rule,
    )


affine = make_affine(sharding="b n, n -> b n")
affine_whole = make_affine()
row_sums = make_row_sums("b _ -> b", reference=lambda x, **_: jnp.sum(x, 1))
grow = make_grow("n, _ -> n")


def affine_in_numpy(x, w):
    return 2 * x + w


X = np.linspace(0, 1, 16 * 8, dtype=np.float32).reshape(16, 8)
W = np.linspace(2, 3, 8, dtype=np.float32)

# ---------------------------------------------------------------------- rules

TWO_IN = (["x", "w"], ["out"], "k(...)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b n, n", "'->'"),
        ("b -> b -> b", "'->'"),
        ("b n -> b n", r"describes 1 input; the kernel has 2 \(x, w\)"),
        ("b n, n -> b n, b", "describes 2 outputs"),
        ("b n, n -> b", "'n' may be split only if every output has it; write _"),
        ("b _, _ -> b n", "'n' is a dimension of no input"),
        ("b b, _ -> b _", "'b' twice"),
        ("b ..., _ -> b", r"'\.\.\.'.*in front"),
        ("b 8, _ -> b _", "'8'"),
        ("b-n, _ -> b n", "'b-n'"),
    ],
)
def test_rules_that_say_what_is_wrong(text, message):
    with pytest.raises(ValueError, match=message) as raised:
        sharding.parse(text, *TWO_IN)
    assert repr(text) in str(raised.value)


def test_a_rule_is_a_string():
    with pytest.raises(TypeError, match="a string"):
        make_affine(sharding=("b n", "n", "b n"))


def test_an_array_without_dimensions():
    rule = sharding.parse(" -> ", ["x"], ["out"], "k")
    assert sharding.dimensions(rule, [(), ()], "k") == [(), ()]
    assert not rule.splits
    rule = sharding.parse("n, -> n", *TWO_IN)
    assert sharding.dimensions(rule, [(4,), (), (4,)], "k") == [("n",), (), ("n",)]


def test_dots_stand_for_any_number_of_dimensions():
    rule = sharding.parse("... _, _ -> ... _", *TWO_IN)
    for shape in ((3,), (2, 3), (4, 2, 3)):
        names = (*(f"...{i}" for i in range(len(shape) - 1)), None)
        assert sharding.dimensions(rule, [shape, (3,), shape], "k") == [names, (None,), names]
    # As numpy broadcasts: what is one beside others is there on every device.
    rule_of_all = sharding.parse("..., ... -> ...", *TWO_IN)
    names = sharding.dimensions(rule_of_all, [(4, 2), (1, 2), (4, 2)], "k")
    assert names == [("...0", "...1"), (None, "...1"), ("...0", "...1")]
    assert sharding.dimensions(rule_of_all, [(1, 2), (4, 2), (4, 2)], "k")[0] == (None, "...1")
    for shapes in ([(4,), (4,), (1,)], [(4,), (2,), (4,)]):
        with pytest.raises(ValueError, match=r"'\.\.\.0' to dimensions of 4 and [12]; "):
            sharding.dimensions(rule_of_all, shapes, "k")
    with pytest.raises(ValueError, match=r"'\.\.\. _' for an array of shape \(3,\)"):
        sharding.dimensions(rule, [(2, 3), (3,), (3,)], "k")


def test_a_rule_is_held_against_the_shapes():
    with pytest.raises(ValueError, match=r"'b n' for an array of shape \(8,\)"):
        affine(W, W)
    with pytest.raises(ValueError, match=r"'n' to dimensions of 8 and 4; .* one size"):
        affine(X, W[:4])


def test_what_cannot_follow_the_parts_is_refused():
    with pytest.raises(TypeError, match=r"with sharding=, out_shape= is a function"):
        jge.cuda_kernel(
            SOURCE,
            "row_sums",
            out_shape=jax.ShapeDtypeStruct((16,), np.float32),
            grid=1,
            block=64,
            sharding="b _ -> b",
        )


# ---------------------------------------------------------------------- values=


def test_values_from_the_shapes():
    np.testing.assert_allclose(affine(X, W), affine_in_numpy(X, W))
    assert inspect.signature(affine).bind(X, W)
    # The call's own keyword wins, and functions see it.
    got = affine_whole(X, W, columns=4)
    np.testing.assert_allclose(got, 2 * X + np.tile(W[:4], 2))
    np.testing.assert_allclose(row_sums(X, rows=5)[:5], X[:5].sum(1), rtol=1e-5)


def test_values_that_are_wrong():
    with pytest.raises(ValueError, match=r"values= names 'm'; .* columns, n"):
        make_affine_with_values({"m": 1})
    with pytest.raises(TypeError, match=r"values=\['n'\]: a mapping"):
        make_affine_with_values(["n"])
    with pytest.raises(TypeError, match="'n': a number"):
        make_affine_with_values({"n": "16"})
    with pytest.raises(TypeError, match="keyword columns is missing"):
        make_affine_with_values({"n": 16})(X, W)
    with pytest.raises(ZeroDivisionError) as raised:
        make_affine_with_values({"n": lambda x, w, **_: 1 // 0, "columns": 8})(X, W)
    assert raised.value.__notes__ == [
        "in values['n'] of kernel 'affine'\n  called as affine(float32[16,8], float32[8])"
    ]
    with pytest.raises(TypeError, match=r"takes 2 inputs \(x, w\); got 3; values are keywords"):
        affine_whole(X, W, 2.0)


def make_affine_with_values(values):
    return jge.cuda_kernel(
        SOURCE, "affine", out_shape=lambda x, *_, **__: x, grid=2, block=64, values=values
    )


# ---------------------------------------------------------------------- 8 devices


def mesh_of(kind, *sizes):
    return jax.make_mesh(sizes, ("d", "e")[: len(sizes)], axis_types=(kind,) * len(sizes))


def meshes(*sizes):
    """A mesh of each kind of axes, and the context for it."""
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = mesh_of(kind, *sizes)
        with jax.set_mesh(mesh) if kind is AxisType.Explicit else contextlib.nullcontext():
            print(kind, sizes, flush=True)
            yield mesh


def put(mesh, x, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def gathers(function, *args):
    """Whether arrays are moved between devices, whole or in part."""
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    text = jitted.lower(*args).compile().as_text()
    return re.search("all-gather|all-to-all|collective-permute|all-reduce", text) is not None


def is_as(x, mesh, *spec):
    assert x.sharding.is_equivalent_to(NamedSharding(mesh, P(*spec)), x.ndim), x.sharding


def close(got, want):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), got, want)


LAYOUTS = [
    (("d",), ()),
    (("d", "e"), ("e",)),
    ((None, "e"), ("e",)),
    ((("d", "e"),), ()),
    ((), ()),
]


def check_split_calls():
    for mesh in meshes(4, 2):
        for spec, w_spec in LAYOUTS:
            x, w = put(mesh, X, *spec), put(mesh, W, *w_spec)
            assert not gathers(affine, x, w)
            y = affine(x, w)
            is_as(y, mesh, *spec)
            close(y, affine_in_numpy(X, W))
        x = put(mesh, X, "d")
        assert not gathers(row_sums, x)
        close(row_sums(x), X.sum(1))
        is_as(row_sums(x), mesh, "d")
        assert "need_replication=" in jax.jit(row_sums).lower(x).as_text()


def check_parts_are_calls_for_local_shapes():
    mesh = mesh_of(AxisType.Auto, 4, 2)
    seen = []

    def out_shape(x, w, **_):
        seen.append((x.shape, w.shape))
        return x

    kernel = jge.cuda_kernel(
        SOURCE,
        "affine",
        out_shape=out_shape,
        grid=lambda x, w, n, **_: jge.cdiv(n, 64),
        block=64,
        values={"n": lambda x, w, **_: x.size, "columns": lambda x, w, **_: w.size},
        sharding="b n, n -> b n",
    )
    close(kernel(put(mesh, X, "d", "e"), put(mesh, W, "e")), affine_in_numpy(X, W))
    assert seen == [((16, 8), (8,)), ((4, 4), (4,))]


def check_derivatives_and_batches():
    def loss(f):
        return lambda x, w: jnp.sum(f(x, w) ** 2)

    three = np.stack([X, X + 1, X - 1])
    for mesh in meshes(4, 2):
        x, w = put(mesh, X, "d"), put(mesh, W)
        xs = put(mesh, three, None, "d")
        gradients = jax.grad(loss(affine), (0, 1))
        wanted = jax.grad(loss(affine_in_numpy), (0, 1))
        for wrap in (lambda f: f, jax.jit):
            close(wrap(gradients)(x, w), wanted(X, W))
        is_as(jax.jit(gradients)(x, w)[0], mesh, "d")
        _, tangent = jax.jit(lambda x, w: jax.jvp(affine, (x, w), (x, w)))(x, w)
        close(tangent, affine_in_numpy(X, W))
        mapped = jax.vmap(affine, (0, None))
        assert not gathers(mapped, xs, w)
        close(jax.jit(mapped)(xs, w), affine_in_numpy(three, W))
        of_gradient = jax.vmap(gradients, (0, None))
        close(jax.jit(of_gradient)(xs, w), jax.vmap(wanted, (0, None))(three, W))
        of_mapped = jax.grad(loss(mapped), (0, 1))
        close(jax.jit(of_mapped)(xs, w), jax.grad(loss(affine_in_numpy), (0, 1))(three, W))


def check_own_derivative_rule():
    kernel = make_affine(sharding="b n, n -> b n", reference=None)
    kernel.defvjp(lambda x, w, **_: (kernel(x, w), None), lambda _, g, **__: (2 * g, g.sum(0)))
    for mesh in meshes(8):
        x, w = put(mesh, X, "d"), put(mesh, W)
        got = jax.jit(jax.grad(lambda x, w: kernel(x, w).sum(), (0, 1)))(x, w)
        close(got, (np.full_like(X, 2), np.full_like(W, 16)))


def check_the_dimensions_of_a_batch():
    call = prepare(affine.definition, [(X.shape, X.dtype), (W.shape, W.dtype)], Keywords({}))
    call = dataclasses.replace(call, batch=((4, (True, False)), (2, (False, True))))
    xs = np.stack([X + i for i in range(4)])
    ws = np.stack([W, 3 * W])
    want = affine_in_numpy(xs[:, None], ws[None, :, None, :])

    def batched(x, w):
        return kernel_p.bind(x, w, call=call)[0]

    for mesh in meshes(4, 2):
        for spec, w_spec, out in (
            (("d",), ("e",), ("d", "e")),
            (("d", "e"), (), ("d", None, "e")),
            ((None, "d", "e"), (None, "e"), (None, None, "d", "e")),
        ):
            x, w = put(mesh, xs, *spec), put(mesh, ws, *w_spec)
            assert not gathers(batched, x, w)
            y = jax.jit(batched)(x, w)
            is_as(y, mesh, *out)
            close(y, want)


def check_other_shardings_are_brought_into_form():
    mesh = mesh_of(AxisType.Auto, 4, 2)
    # What stays whole is gathered, in the other dimension alone.
    x = put(mesh, X, "d", "e")
    assert gathers(row_sums, x)
    close(row_sums(x), X.sum(1))
    is_as(row_sums(x), mesh, "d")
    # Two inputs that disagree.
    close(affine(put(mesh, X, "d"), put(mesh, W, "d")), affine_in_numpy(X, W))
    close(affine(put(mesh, X, "d", "e"), put(mesh, W, "d")), affine_in_numpy(X, W))
    # The output decides too.
    for spec in ((), ("d", "e"), ("e", "d"), (None, ("d", "e"))):
        f = jax.jit(affine, out_shardings=NamedSharding(mesh, P(*spec)))
        close(f(put(mesh, X, "d"), put(mesh, W)), affine_in_numpy(X, W))
        is_as(f(put(mesh, X, "d"), put(mesh, W)), mesh, *spec)
    # What is asked of the output is computed as such, where inputs do not say otherwise.
    f = jax.jit(affine, out_shardings=NamedSharding(mesh, P("d", "e")))
    assert not gathers(f, put(mesh, X), put(mesh, W))
    # Parts of different sizes are not made: the kernel would see what they are padded with.
    mesh = mesh_of(AxisType.Auto, 8)

    def uneven(x, w):
        return affine(jax.lax.with_sharding_constraint(x[:11], NamedSharding(mesh, P("d"))), w)

    close(jax.jit(uneven)(put(mesh, X, "d"), put(mesh, W)), affine_in_numpy(X[:11], W))


def check_calls_that_batching_made_for_more_dimensions():
    scale = jge.cuda_kernel(
        SOURCE,
        "affine",
        out_shape=lambda x, w, **_: jax.ShapeDtypeStruct((x.shape[0],), x.dtype),
        grid=lambda x, w, n, **_: jge.cdiv(n, 64),
        block=64,
        values={"n": lambda x, w, **_: x.size, "columns": lambda x, w, **_: w.size},
        sharding="n, _ -> n",
    )
    one = np.full((1, 1), 3, np.float32)
    call = prepare(
        scale.definition,
        [(X.shape, X.dtype), (one.shape, one.dtype)],
        Keywords({}),
        out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype),
    )

    def batched(x, w):
        return kernel_p.bind(x, w, call=call)[0]

    for mesh in meshes(4, 2):
        for spec in (("d",), ("d", "e"), (None, "d")):
            x, w = put(mesh, X, *spec), put(mesh, one)
            assert not gathers(batched, x, w)
            y = jax.jit(batched)(x, w)
            is_as(y, mesh, *spec)
            close(y, 2 * X + 3)


def check_shardings_from_within():
    """Constraints say how arrays are split, and arguments do not."""
    mesh = mesh_of(AxisType.Auto, 4, 2)

    def f(x, w):
        return affine(jax.lax.with_sharding_constraint(x, P("d")), w)

    def with_concrete_mesh(x, w):
        return affine(jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("d"))), w)

    with jax.set_mesh(mesh):
        traced = jax.jit(f).trace(X, W)
    for lowered in (traced.lower(), jax.jit(with_concrete_mesh).lower(X, W)):
        y, found = caught(lambda c=lowered: c.compile()(X, W))
        close(y, affine_in_numpy(X, W))
        is_as(y, mesh, "d")
        assert not found
    with jax.set_mesh(mesh):
        assert not gathers(f, X, W)
        y, found = caught(jax.jit(lambda x, w: f(x, w)), X, W)
        close(y, affine_in_numpy(X, W))
        is_as(y, mesh, "d")
        assert not found


def check_the_older_partitioner():
    mesh = mesh_of(AxisType.Auto, 4, 2)
    shardy = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        for spec, w_spec in LAYOUTS:
            x, w = put(mesh, X, *spec), put(mesh, W, *w_spec)
            f = jax.jit(lambda x, w: affine(x, w))
            assert not gathers(f, x, w)
            is_as(f(x, w), mesh, *spec)
            close(f(x, w), affine_in_numpy(X, W))
        close(jax.jit(row_sums)(put(mesh, X, "d", "e")), X.sum(1))
    finally:
        jax.config.update("jax_use_shardy_partitioner", shardy)


def check_explicit_axes_are_in_the_types():
    with jax.set_mesh(mesh_of(AxisType.Explicit, 4, 2)):
        mesh = jax.sharding.get_mesh()
        x, w = put(mesh, X, "d", "e"), put(mesh, W, "e")
        assert jax.eval_shape(affine, x, w).sharding.spec == P("d", "e")
        with pytest.raises(TypeError, match=r"'x' is sharded as .*'d', 'e'.*name those"):
            row_sums(x)
        with pytest.raises(TypeError, match=r"'w' is sharded .*'n' over 'e'.*reshard"):
            affine(x, put(mesh, W, "d"))
        with pytest.raises(TypeError, match=r"'b' and 'n' are both sharded over 'd'.*reshard"):
            affine(put(mesh, X, "d"), put(mesh, W, "d"))
        with pytest.raises(TypeError, match=r"affine.*sharding=.*jax\.shard_map"):
            affine_whole(x, w)


def caught(function, *args):
    """What a function returns, and the gathers that it warns of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        out = function(*args)
    return out, [str(w.message) for w in found if w.category is jge.GatherWarning]


def check_warnings():
    mesh = mesh_of(AxisType.Auto, 8)
    x, w = put(mesh, X, "d"), put(mesh, W)
    y, found = caught(jax.jit(lambda x, w: affine_whole(x, w)), x, w)
    close(y, affine_in_numpy(X, W))
    assert len(found) == 1
    assert "kernel 'affine'" in found[0]
    assert "sharding=" in found[0]
    assert "jax.shard_map" in found[0]
    assert gathers(affine_whole, x, w)
    # No false alarm: with a rule, on one device, inside shard_map, where a reference runs, where
    # the rule says that all stays whole, and where types say that nothing is sharded.
    whole = make_affine(sharding="_ _, _ -> _ _")
    spec = {"mesh": mesh, "in_specs": (P("d"), P()), "out_specs": P("d")}
    quiet = [
        (affine, x, w),
        (affine_whole, X, W),
        (jax.shard_map(affine_whole, **spec), x, w),
        (make_affine(cpu="reference"), x, w),
        (whole, x, w),
    ]
    for f, *args in quiet:
        y, found = caught(jax.jit(lambda x, w, f=f: f(x, w)), *args)
        close(y, affine_in_numpy(X, W))
        assert not found, found
    with jax.set_mesh(mesh_of(AxisType.Explicit, 8)):
        mesh = jax.sharding.get_mesh()
        y, found = caught(jax.jit(lambda x, w: affine_whole(x, w)), put(mesh, X), put(mesh, W))
        assert not found, found
    # Where the other axes of the mesh are XLA's.
    mesh = mesh_of(AxisType.Auto, 4, 2)
    for kernel in (affine, affine_whole):
        partly = jax.shard_map(
            kernel,
            mesh=mesh,
            in_specs=(P("d"), P()),
            out_specs=P("d"),
            axis_names={"d"},
        )
        y, found = caught(jax.jit(partly), put(mesh, X, "d", "e"), put(mesh, W, "e"))
        close(y, affine_in_numpy(X, W))
        assert len(found) == 1, found


def check_wrong_parts():
    mesh = mesh_of(AxisType.Auto, 8)
    fixed = jge.cuda_kernel(
        SOURCE,
        "affine",
        out_shape=lambda x, w, **_: jax.ShapeDtypeStruct((16, 8), x.dtype),
        grid=1,
        block=64,
        values={"n": 16, "columns": 8},
        sharding="b n, n -> b n",
    )
    with pytest.raises(Exception, match=r"(?s)kernel 'affine'.*\(2, 8\).*\(16, 8\).*follow"):
        fixed(put(mesh, X, "d"), put(mesh, W))
    broken = jge.cuda_kernel(
        "__global__ void broken(const float* x, float* out) { out[0] = nonsense; }",
        "broken",
        out_shape=lambda x: x,
        grid=1,
        block=1,
        sharding="n -> n",
    )
    with pytest.raises(jge.KernelCompileError, match="nonsense"):
        broken(put(mesh, W, "d"))


def check_regions():
    mesh = mesh_of(AxisType.Auto, 8)
    x, w = put(mesh, X, "d"), put(mesh, W)

    def step(kernel):
        return lambda x, w: kernel(jnp.tanh(kernel(x, w)), w)

    want = step(affine_in_numpy)(X, W)
    split, whole = (jge.graph(step(k), name="step") for k in (affine, affine_whole))
    # Kernels with rules: split one by one.
    y, found = caught(jax.jit(split), x, w)
    close(y, want)
    is_as(y, mesh, "d")
    assert not found
    assert not gathers(split, x, w)
    ws = np.stack([W, 2 * W])
    close(
        jax.jit(jax.vmap(split, (None, 0)))(x, put(mesh, ws)),
        jax.vmap(step(affine_in_numpy), (None, 0))(X, ws),
    )
    close(
        jax.jit(jax.grad(lambda x, w: split(x, w).sum(), (0, 1)))(x, w),
        jax.grad(lambda x, w: step(affine_in_numpy)(x, w).sum(), (0, 1))(X, W),
    )
    # Without: one program, of gathered operands, and a warning with its name.
    y, found = caught(jax.jit(whole), x, w)
    close(y, want)
    assert len(found) == 1
    assert "region 'step'" in found[0]
    assert "jax.shard_map" in found[0]
    # No program, no alarm: where references run, and where programs are inside shard_map.
    spec = {"mesh": mesh, "in_specs": (P("d"), P()), "out_specs": P("d")}
    for region in (
        jge.graph(step(make_affine(cpu="reference"))),
        jge.graph(jax.shard_map(step(affine_whole), **spec)),
    ):
        y, found = caught(jax.jit(region), x, w)
        close(y, want)
        assert not found
    # A strict region stays whole.
    strict = jge.graph(lambda x, w: affine(affine(x, w), w), name="strict one", strict=True)
    y, found = caught(jax.jit(strict), x, w)
    close(y, 4 * X + 3 * W)
    assert len(found) == 1
    assert "region 'strict one'" in found[0]
    # Inside shard_map it is what it is on one device.
    for region in (split, whole, strict):
        f = jax.jit(jax.shard_map(region, **spec))
        y, found = caught(f, x, w)
        close(y, 4 * X + 3 * W if region is strict else want)
        assert not found
        assert not gathers(f, x, w)
    text = jax.jit(jax.shard_map(strict, **spec)).lower(x, w).as_text()
    assert text.count("jax_graphenc.program.v1") == 1


def check_shard_map_with_a_scan():
    want = X
    for _ in range(3):
        want = affine_in_numpy(want, W)
    for mesh, vma, kernel in itertools.product(
        meshes(4, 2), (True, False), (affine, affine_whole, jge.graph(affine_whole))
    ):

        def body(x, w, kernel=kernel):
            return jax.lax.scan(lambda c, _: (kernel(c, w), c.sum()), x, None, length=3)[0]

        f = jax.shard_map(
            body, mesh=mesh, in_specs=(P("d", "e"), P("e")), out_specs=P("d", "e"), check_vma=vma
        )
        x, w = put(mesh, X, "d", "e"), put(mesh, W, "e")
        for wrap in (lambda f: f, jax.jit):
            close(wrap(f)(x, w), want)
        assert not gathers(f, x, w)
        gradients = jax.jit(jax.grad(lambda x, w, f=f: (f(x, w) ** 2).sum(), (0, 1)))(x, w)
        close(gradients, (2 * want * 8, (2 * want * 7).sum(0)))


def check_a_rule_costs_nothing_in_shard_map():
    """There it can be exported and kept: no callback into this process is left."""
    mesh = mesh_of(AxisType.Auto, 8)
    f = jax.shard_map(affine, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
    x, w = put(mesh, X, "d"), put(mesh, W)
    exported = jax.export.export(jax.jit(f), disabled_checks=jge.export_checks())(x, w)
    loaded = jax.export.deserialize(exported.serialize())
    close(jax.jit(loaded.call)(x, w), affine_in_numpy(X, W))
    abstract = jax.sharding.AbstractMesh((8,), ("d",))
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(abstract, P("d")))
    f = jax.shard_map(affine, mesh=abstract, in_specs=(P("d"), P()), out_specs=P("d"))
    traced = jax.jit(f).trace(shape, jax.ShapeDtypeStruct(W.shape, W.dtype))
    assert "jax_graphenc.program" in traced.lower(lowering_platforms=("cpu",)).as_text()


def check_scans_under_jit():
    for mesh in meshes(8):
        x, w = put(mesh, X, "d"), put(mesh, W)

        def f(x, w):
            return jax.lax.scan(lambda c, _: (affine(c, w), None), x, None, length=3)[0]

        assert not gathers(f, x, w)
        close(jax.jit(f)(x, w), 8 * X + 7 * W)
        close(
            jax.jit(jax.grad(lambda x, w, f=f: f(x, w).sum(), (0, 1)))(x, w),
            (np.full_like(X, 8), np.full_like(W, 7 * 16)),
        )


def check_aliased_and_donated():
    n = np.arange(64, dtype=np.float32)
    one = np.ones(1, np.float32)
    for mesh in meshes(8):
        x, w = put(mesh, n, "d"), put(mesh, one)
        assert not gathers(grow, x, w)
        close(grow(x, w), n + 1)
        close(x + 0, n)  # still the caller's
        step = jax.jit(lambda x, w: grow(grow(x, w), w), donate_argnums=0)
        for i in range(1, 5):
            before = x
            x = step(x, w)
            is_as(x, mesh, "d")
            close(x + 0, n + 2 * i)  # JAX 0.11 does not donate what numpy has a view of
            assert before.is_deleted()
    mesh = mesh_of(AxisType.Auto, 8)
    whole, _ = caught(jax.jit(make_grow(None), donate_argnums=0), put(mesh, n, "d"), put(mesh, one))
    close(whole, n + 1)


def check_threads():
    """A thread for each device, and one for calls on all of them."""
    mesh = mesh_of(AxisType.Auto, 8)
    step = jax.jit(lambda x, w: affine_whole(grow(x.ravel(), w[:1]).reshape(x.shape), w))
    region = jax.jit(jge.graph(lambda x, w: affine_whole(affine_whole(x, w), w)))
    errors = []

    def run(number):
        try:
            device = jax.devices()[number]
            for i in range(20):
                x, w = (jax.device_put(v + number + i, device) for v in (X, W))
                y, z = step(x, w), region(x, w)
                assert y.devices() == {device}
                close(y, 2 * (X + W[0] + 2 * (number + i)) + W + number + i)
                close(z, 4 * (X + number + i) + 3 * (W + number + i))
        except BaseException as error:
            errors.append(error)
            raise

    def run_on_all():
        try:
            for i in range(20):
                close(affine(put(mesh, X + i, "d"), put(mesh, W)), affine_in_numpy(X + i, W))
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    threads.append(threading.Thread(target=run_on_all))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def check_parts_have_scratch_memory_and_null_pointers():
    source = r"""
    __global__ void f(const float* x, const float* w, int* count, float* out, int n) {
      for (int i = 0; i < n; ++i) out[i] = x[i] + count[0]++ + (w ? w[0] : 0);
    }"""
    shapes = set()
    kernel = jge.cuda_kernel(
        source,
        "f",
        out_shape=lambda x: x,
        grid=1,
        block=1,
        values={"n": lambda x: x.size},
        scratch={"count": lambda x: shapes.add(x.shape) or jax.ShapeDtypeStruct((1,), "int32")},
        zero_init=("count",),
        sharding="n, _ -> n",
    )
    for mesh in meshes(8):
        x = put(mesh, np.arange(32.0, dtype=np.float32), "d")
        steps = np.tile(np.arange(4), 8)
        assert not gathers(lambda x: kernel(x, None), x)
        close(kernel(x, None), np.arange(32) + steps)
        close(kernel(x, put(mesh, np.ones(1, np.float32))), np.arange(32) + steps + 1)
    assert (4,) in shapes


CHECKS = {name: check for name, check in globals().items() if name.startswith("check_")}


def run_checks():
    """Runs all checks in this process, which has 8 devices; says which fail."""
    import traceback

    assert len(jax.devices()) == 8
    for name, check in CHECKS.items():
        print(f"== {name}", flush=True)
        try:
            check()
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            print(f"== {name} failed", flush=True)
    print("== done", flush=True)


@pytest.fixture(scope="module")
def eight_devices():
    done = start_on_cpu_devices("import test_sharding; test_sharding.run_checks()", 8, timeout=600)
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", CHECKS)
def test_on_eight_devices(eight_devices, name):
    _, found, rest = eight_devices.partition(f"== {name}\n")
    output = rest.partition("\n== check")[0]
    assert found, eight_devices
    assert f"== {name} failed" not in rest, output
    assert "== done" in eight_devices, eight_devices

"""Kernels as functions of arrays: roles, dtypes, templates, launches, caches, transformations."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.primitives import program_p
from jax_graphenc.programs.program import Kernel, Node, Program

SAXPY = r"""
extern "C" __global__ void saxpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
"""


def make_saxpy(**changes):
    arguments = {
        "name": "saxpy",
        "out_shape": lambda x, y, **_: x,
        "grid": lambda x, y, **_: jge.cdiv(x.size, 256),
        "block": 256,
    }
    return jge.cuda_kernel(SAXPY, **{**arguments, **changes})


@pytest.fixture(scope="module")
def saxpy():
    return make_saxpy()


@pytest.fixture(scope="module")
def xy():
    return jnp.linspace(0, 1, 1000), jnp.linspace(1, 2, 1000)


def test_a_kernel_under_jit_and_eagerly(saxpy, xy):
    x, y = xy
    expected = np.float32(2) * np.asarray(x) + np.asarray(y)
    np.testing.assert_allclose(saxpy(x, y, a=2.0, n=x.size), expected, rtol=1e-6)
    jitted = jax.jit(lambda x, y: jnp.sum(saxpy(x, y, a=2.0, n=x.size)))
    np.testing.assert_allclose(jitted(x, y), expected.sum(), rtol=1e-5)


def test_every_call_is_one_custom_call(saxpy, xy):
    def chain(x, y):
        for _ in range(5):
            y = saxpy(x, y, a=0.5, n=x.size)
        return y

    hlo = jax.jit(chain).lower(*xy).compile().as_text()
    assert hlo.count('custom_call_target="jax_graphenc.program.v1"') == 5
    assert " copy(" not in hlo
    np.testing.assert_allclose(jax.jit(chain)(*xy), 2.5 * xy[0] + xy[1], rtol=1e-5)


def test_several_outputs_come_in_the_kernels_order(xy):
    split = jge.cuda_kernel(
        r"""extern "C" __global__ void split(int* negative, const float* x,
                                         float* magnitude, int n) {
              int i = blockIdx.x * blockDim.x + threadIdx.x;
              if (i < n) { negative[i] = x[i] < 0; magnitude[i] = fabsf(x[i]); }
            }""",
        "split",
        out_shape=lambda x, **_: (jax.ShapeDtypeStruct(x.shape, jnp.int32), x),
        grid=lambda x, **_: jge.cdiv(x.size, 128),
        block=128,
    )
    x = xy[0] - 0.5
    negative, magnitude = jax.jit(lambda x: split(x, n=x.size))(x)
    np.testing.assert_array_equal(negative, x < 0)
    np.testing.assert_array_equal(magnitude, jnp.abs(x))


@pytest.fixture(scope="module")
def add_one():
    return jge.cuda_kernel(
        r"""extern "C" __global__ void add_one(float* u, int n) {
              int i = blockIdx.x * blockDim.x + threadIdx.x;
              if (i < n) u[i] += 1;
            }""",
        "add_one",
        params={"u": "inout"},
        grid=lambda u, **_: jge.cdiv(u.size, 64),
        block=64,
    )


def test_in_place_on_a_donated_argument_copies_nothing(add_one):
    chain = jax.jit(lambda u: add_one(add_one(u, n=u.size), n=u.size), donate_argnums=0)
    compiled = chain.lower(jnp.arange(100.0)).compile()
    assert " copy(" not in compiled.as_text()
    np.testing.assert_array_equal(compiled(jnp.arange(100.0)), np.arange(100) + 2)


@pytest.mark.parametrize("dtype", [jnp.complex64, jnp.complex128])
def test_complex_numbers(dtype):
    conjugate = jge.cuda_kernel(
        r"""
        #include <cuComplex.h>
        template <typename T> __global__ void conjugate(const T* x, T* out) {
          T z = x[threadIdx.x]; z.y = -z.y; out[threadIdx.x] = z;
        }""",
        "conjugate<{x}>",
        out_shape=lambda x: x,
        grid=1,
        block=lambda x: x.size,
    )
    with jax.enable_x64(True):
        x = jnp.asarray(np.arange(8) + 1j * np.arange(8)[::-1]).astype(dtype)
        np.testing.assert_array_equal(conjugate(x), jnp.conj(x))


def test_vector_types_take_arrays_of_their_elements():
    norms = jge.cuda_kernel(
        r"""extern "C" __global__ void norms(const float4* v, float* out) {
              float4 a = v[threadIdx.x];
              out[threadIdx.x] = a.x * a.x + a.y * a.y + a.z * a.z + a.w * a.w;
            }""",
        "norms",
        out_shape=lambda v: jax.ShapeDtypeStruct(v.shape[:1], v.dtype),
        grid=1,
        block=lambda v: v.shape[0],
    )
    v = jnp.arange(40.0).reshape(10, 4)
    np.testing.assert_allclose(norms(v), (np.asarray(v) ** 2).sum(1))


VECTORS = r"""
#include <cuda_fp16.h>
#include "vectors.h"
typedef float3 Here;
extern "C" __global__ void f(const float3* x, float* out) { out[0] = x[0].x; }
extern "C" __global__ void named(const Here* x, float* out) { out[0] = x[0].x; }
extern "C" __global__ void writes(const float* x, float3* out) { out[0].x = x[0]; }
extern "C" __global__ void updates(float3* x) { x[0].x = 1; }
extern "C" __global__ void halves(const half2* x, float* out) { out[0] = float(x[0].x); }
extern "C" __global__ void elsewhere(const Elsewhere* x, float* out) { out[0] = x[0].x; }
"""


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "of"),
    [
        *(("f", (4, 2), "float32", 3), ("named", (4, 2), "float32", 3)),
        *(("writes", (4, 2), "float32", 3), ("updates", (4,), "float32", 3)),
        *(("halves", (3,), "float16", 2), ("elsewhere", (4, 2), "float32", 3)),
    ],
)
def test_an_array_is_whole_vectors(name, shape, dtype, of, tmp_path):
    (tmp_path / "vectors.h").write_text("typedef float3 Elsewhere;")
    kernel = jge.cuda_kernel(
        VECTORS,
        name,
        out_shape=None if name == "updates" else lambda x: x if name == "writes" else ONE,
        grid=1,
        block=1,
        params={"x": "inout"} if name == "updates" else None,
        include_dirs=[tmp_path],
    )
    x = jnp.ones(shape, dtype)
    said = rf"kernel '?{name}.*{x.size}, is no multiple of {of}"
    with pytest.raises(ValueError, match=said):
        jax.jit(kernel)(x)
    with pytest.raises(ValueError, match=said):
        jax.vmap(kernel)(jnp.stack([x] * of))
    array = np.ones(shape, dtype)
    arrays = (array,) if name == "updates" else (array, np.ones(shape, np.float32))
    device = jax.devices("cpu")[0]
    with jge.Encoder(device) as encoder, pytest.raises(ValueError, match=said):
        encoder.append(kernel, *arrays)
    kernel(jnp.ones((of, *shape), dtype))
    kernel(jnp.ones((0, *shape), dtype))


ONE = jax.ShapeDtypeStruct((1,), jnp.float32)


def test_a_struct_by_value_is_a_structured_scalar():
    kernel = jge.cuda_kernel(
        r"""struct Step { float scale; int n; double shift; };
            extern "C" __global__ void step(const float* x, float* out, Step s) {
              int i = threadIdx.x; if (i < s.n) out[i] = s.scale * x[i] + float(s.shift);
            }""",
        "step",
        out_shape=lambda x, **_: x,
        grid=1,
        block=32,
    )
    layout = np.dtype([("scale", "f4"), ("n", "i4"), ("shift", "f8")], align=True)
    s = np.array((2.0, 30, 0.5), layout)[()]
    x = jnp.arange(30.0)
    np.testing.assert_array_equal(kernel(x, s=s), 2 * x + 0.5)
    with pytest.raises(TypeError, match=r"'s' is Step, 16 bytes, for the compiler; the call .* 8"):
        kernel(x, s=np.zeros((), [("scale", "f8")])[()])


def test_padding_is_no_part_of_a_struct():
    kernel = jge.cuda_kernel(
        r"""struct Inner { char c; int n; };
            struct Step { char c; Inner inner[2]; double shift; };
            extern "C" __global__ void step(float* out, Step s) {
              out[0] = s.c + s.inner[0].n + s.inner[1].c + s.shift;
            }""",
        "step",
        out_shape=jax.ShapeDtypeStruct((1,), jnp.float32),
        grid=1,
        block=1,
    )
    inner = np.dtype([("c", "i1"), ("n", "i4")], align=True)
    layout = np.dtype([("c", "i1"), ("inner", inner, 2), ("shift", "f8")], align=True)

    def with_padding(byte):
        # Bytes are copied whole; a copy of a structured array need not take its padding along.
        s = np.full(layout.itemsize, byte, np.uint8).view(layout)[0]
        s["c"], s["shift"] = 1, 1000
        s["inner"]["c"], s["inner"]["n"] = [10, 20], [300, 400]
        return s

    first, second = with_padding(0xFF), with_padding(0xAA)
    assert first.tobytes() != second.tobytes()
    assert kernel(s=first)[0] == 1 + 300 + 20 + 1000
    hlo = [jax.jit(lambda s=s: kernel(s=s)).lower().as_text() for s in (first, second)]
    assert hlo[0] == hlo[1]


def test_each_kernel_of_one_name_runs_its_own_code():
    def make(body):
        return jge.cuda_kernel(
            'extern "C" __global__ void f(const float* x, float* out) '
            f"{{ out[threadIdx.x] = {body}; }}",
            "f",
            out_shape=lambda x: x,
            grid=1,
            block=8,
        )

    double, square = make("2 * x[threadIdx.x]"), make("x[threadIdx.x] * x[threadIdx.x]")
    x = jnp.arange(8.0)
    a, b = jax.jit(lambda x: (double(x), square(x)))(x)
    np.testing.assert_array_equal(a, 2 * x)
    np.testing.assert_array_equal(b, x * x)


def test_negative_zero_and_integers_are_not_confused():
    sign = jge.cuda_kernel(
        'extern "C" __global__ void sign(float* out, float v) { out[0] = copysignf(1.0f, v); }',
        "sign",
        out_shape=jax.ShapeDtypeStruct((), jnp.float32),
        grid=1,
        block=1,
    )
    assert [float(sign(v=v)) for v in (0.0, -0.0, 0)] == [1, -1, 1]


@pytest.mark.parametrize("size", [0, 1])
def test_zero_sizes_and_zero_grids_launch_nothing(saxpy, size):
    x = jnp.zeros((size,))
    jge.reset_stats()
    out = jax.jit(lambda x: saxpy(x, x, a=1.0, n=x.size))(x)
    assert out.shape == (size,)
    assert jge.stats()["direct_launches"] == size


def test_a_zero_grid_keeps_what_is_updated_in_place(add_one):
    u = jnp.arange(10.0)
    none = jge.cuda_kernel(
        'extern "C" __global__ void add_one(float* u) { u[threadIdx.x] += 1; }',
        "add_one",
        params={"u": "inout"},
        grid=0,
        block=10,
    )
    np.testing.assert_array_equal(jax.jit(none)(u), u)


def test_blocks_and_grids_have_three_dimensions():
    place = jge.cuda_kernel(
        r"""extern "C" __global__ void place(int* out) {
              int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
              int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
              int i = block * blockDim.x * blockDim.y * blockDim.z + thread;
              out[i] = i;
            }""",
        "place",
        out_shape=jax.ShapeDtypeStruct((2 * 3 * 4 * 5 * 2 * 3,), jnp.int32),
        grid=(2, 3, 4),
        block=[5, 2, 3],
    )
    np.testing.assert_array_equal(place(), np.arange(720))


def test_defines_choose_code():
    def tile(size):
        return jge.cuda_kernel(
            'extern "C" __global__ void tile(int* out) { out[0] = TILE; }',
            "tile",
            out_shape=jax.ShapeDtypeStruct((1,), jnp.int32),
            grid=1,
            block=1,
            defines={"TILE": size},
        )

    assert (int(tile(8)()[0]), int(tile(32)()[0])) == (8, 32)


def test_source_from_a_file(tmp_path):
    path = tmp_path / "solver.cu"
    path.write_text(SAXPY)
    kernel = jge.cuda_kernel(
        path, "saxpy", out_shape=lambda x, y, **_: x, grid=1, block=lambda x, y, **_: x.size
    )
    x = jnp.arange(10.0)
    np.testing.assert_array_equal(kernel(x, x, a=1.0, n=10), 2 * x)


# ---------------------------------------------------------------------- transformations


def reference(x, y, *, a, n):
    return a * x + y


def test_derivatives_from_a_reference(xy):
    kernel = make_saxpy(reference=reference)
    x, y = xy

    def loss(f):
        return lambda x, y: jnp.sum(jnp.sin(f(x, y, a=3.0, n=x.size)))

    for derivative in (jax.grad, lambda f, n: jax.jit(jax.grad(f, n))):
        for got, want in zip(
            derivative(loss(kernel), (0, 1))(x, y),
            jax.grad(loss(reference), (0, 1))(x, y),
            strict=True,
        ):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    _, got = jax.jvp(lambda x: kernel(x, y, a=3.0, n=x.size), (x,), (y,))
    np.testing.assert_allclose(got, 3 * y, rtol=1e-6)


def test_rules_of_the_users_win_over_the_reference(xy):
    x, y = xy
    reverse = make_saxpy(reference=reference)
    reverse.defvjp(
        lambda x, y, *, a, n: (reverse(x, y, a=a, n=n), None),
        lambda residuals, ct, *, a, n: (a * ct, 10 * ct),
    )
    f = jax.jit(jax.grad(lambda x, y: jnp.sum(reverse(x, y, a=3.0, n=x.size)), (0, 1)))
    np.testing.assert_array_equal(f(x, y)[0], jnp.full_like(x, 3))
    np.testing.assert_array_equal(f(x, y)[1], jnp.full_like(x, 10))

    forward = make_saxpy()
    forward.defjvp(
        lambda primals, tangents, *, a, n: (forward(*primals, a=a, n=n), 7 * tangents[0])
    )
    _, tangent = jax.jvp(lambda x: forward(x, y, a=3.0, n=x.size), (x,), (y,))
    np.testing.assert_array_equal(tangent, 7 * y)


@pytest.mark.parametrize("wrap", [lambda f: f, jge.graph], ids=["alone", "region"])
def test_transposes_from_a_reference(xy, wrap):
    """In a rule of defjvp, and where a linear function is transposed."""
    x, y = xy
    kernel = make_saxpy(reference=reference)
    kernel.defjvp(
        lambda primals, tangents, *, a, n: (kernel(*primals, a=a, n=n), plain(*tangents, a=a, n=n))
    )
    plain = make_saxpy(reference=reference)
    f = wrap(lambda x, y: kernel(x, y, a=3.0, n=x.shape[-1]))
    grads = jax.jit(jax.grad(lambda x, y: jnp.sum(x * f(x, y)), (0, 1)))(x, y)
    for got, want in zip(grads, (6 * x + y, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)

    linear = wrap(lambda x, y: plain(x, y, a=3.0, n=x.shape[-1]))
    for got, factor in zip(jax.linear_transpose(linear, x, y)(x), (3, 1), strict=True):
        np.testing.assert_allclose(got, factor * x, rtol=1e-6)
    xs = jnp.stack([x, y])
    (got,) = jax.linear_transpose(jax.vmap(lambda x: linear(x, x)), xs)(xs)
    np.testing.assert_allclose(got, 4 * xs, rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, jge.graph], ids=["alone", "region"])
def test_what_has_no_transpose_says_what_to_give(xy, wrap):
    x, y = xy
    kernel = make_saxpy()
    kernel.defjvp(
        lambda primals, tangents, *, a, n: (kernel(*primals, a=a, n=n), kernel(*tangents, a=a, n=n))
    )
    f = wrap(lambda x, y: kernel(x, y, a=3.0, n=x.size))
    said = r"kernel 'saxpy' cannot be transposed.*reference=.*saxpy\.defvjp\(fwd, bwd\)"
    with pytest.raises(NotImplementedError, match=said):
        jax.grad(lambda x: jnp.sum(f(x, y)))(x)
    with pytest.raises(NotImplementedError, match=said):
        jax.linear_transpose(f, x, y)(x)


@pytest.mark.usefixtures("cpu")
def test_the_reference_sees_the_keywords_as_they_were_given(xy):
    def kind(x, *, a):
        return jnp.full_like(x, {float: 1, int: 2, bool: 3, np.float64: 4}[type(a)])

    kernel = jge.cuda_kernel(
        'extern "C" __global__ void f(const float* x, float* out, float a) { out[0] = a; }',
        "f",
        out_shape=lambda x, **_: x,
        grid=1,
        block=1,
        reference=kind,
        cpu="reference",
    )
    x = xy[0][:1]
    values = (1.0, 1, True, np.float64(1), float("nan"), -0.0)
    out = jax.jit(lambda x: [kernel(x, a=a) for a in values])(x)
    assert [int(o[0]) for o in out] == [1, 2, 3, 4, 1, 1]


def test_structs_go_to_a_reference_too():
    layout = np.dtype([("scale", "f4"), ("n", "i4")])
    kernel = jge.cuda_kernel(
        "struct Step { float scale; int n; };"
        'extern "C" __global__ void f(const float* x, float* out, Step s)'
        " { out[threadIdx.x] = s.scale * x[threadIdx.x]; }",
        "f",
        out_shape=lambda x, **_: x,
        grid=1,
        block=8,
        reference=lambda x, *, s: s["scale"] * x,
    )
    x, s = jnp.arange(8.0), np.array((3, 8), layout)[()]
    np.testing.assert_array_equal(jax.jit(lambda x: kernel(x, s=s))(x), 3 * x)
    np.testing.assert_array_equal(jax.grad(lambda x: kernel(x, s=s).sum())(x), np.full(8, 3))


@pytest.mark.parametrize("reference", [None, lambda x: (x > 3).astype(jnp.int32)])
def test_integers_have_no_derivative_and_need_none(reference):
    above = jge.cuda_kernel(
        'extern "C" __global__ void above(const float* x, int* out)'
        " { out[threadIdx.x] = x[threadIdx.x] > 3; }",
        "above",
        out_shape=lambda x: jax.ShapeDtypeStruct(x.shape, jnp.int32),
        grid=1,
        block=8,
        reference=reference,
    )
    x = jnp.arange(8.0)
    for derivative in (jax.grad, lambda f: jax.jit(jax.grad(f)), jax.jacfwd):
        gradient = derivative(lambda x: jnp.sum(above(x) * x))(x)
        np.testing.assert_array_equal(gradient, x > 3)


def test_sequential_batches_with_unbatched_operands(xy):
    kernel = make_saxpy(vmap="sequential")
    x, y = xy
    batch = jnp.stack([x, 2 * x, 3 * x], axis=1)
    f = jax.vmap(lambda x, y: kernel(x, y, a=2.0, n=x.size), in_axes=(1, None))
    np.testing.assert_allclose(jax.jit(f)(batch, y), 2 * batch.T + y, rtol=1e-6)
    g = jax.vmap(jax.vmap(lambda x, y: kernel(x, y, a=2.0, n=x.size), (0, None)), (None, 0))
    np.testing.assert_allclose(g(batch.T, batch.T), 2 * batch.T[None] + batch.T[:, None], rtol=1e-6)


def test_loops_and_branches(saxpy, xy):
    x, y = xy

    def step(_, y):
        return saxpy(x, y, a=0.5, n=x.size)

    np.testing.assert_allclose(jax.lax.fori_loop(0, 10, step, y), 5 * x + y, rtol=1e-5)
    branch = jax.jit(lambda p: jax.lax.cond(p, lambda: step(0, y), lambda: y))
    np.testing.assert_allclose(branch(True), 0.5 * x + y, rtol=1e-5)
    np.testing.assert_allclose(branch(False), y)


def test_inside_shard_map(saxpy):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")
    f = jax.shard_map(
        lambda x, y: saxpy(x, y, a=2.0, n=x.size), mesh=mesh, in_specs=(spec, spec), out_specs=spec
    )
    x = jnp.arange(64.0)
    np.testing.assert_array_equal(jax.jit(f)(x, x), 3 * x)


def test_arrays_sharded_over_explicit_axes_are_refused(saxpy):
    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Explicit,))
    spec = jax.sharding.PartitionSpec("i")
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.arange(8.0), jax.sharding.NamedSharding(mesh, spec))
        y = jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
        with pytest.raises(TypeError, match=r"input 'y' is sharded as .*jax\.shard_map"):
            jax.jit(lambda x, y: saxpy(y, x, a=2.0, n=x.size))(x, y)
        np.testing.assert_array_equal(saxpy(y, y, a=2.0, n=x.size), 3 * y)
        inside = jax.shard_map(
            lambda x: saxpy(x, x, a=2.0, n=x.size), in_specs=(spec,), out_specs=spec
        )
        np.testing.assert_array_equal(jax.jit(inside)(x), 3 * x)


# ---------------------------------------------------------------------- caches and threads


def test_an_equation_prints_in_one_line(xy):
    x, y = xy
    kernel = make_saxpy(grid=(2, 2), sharding="n, n -> n")
    structured = np.zeros((), [("a", "f4")])[()]
    struct = jge.cuda_kernel(
        "struct A { float a; };\n"
        'extern "C" __global__ void f(const float* x, float* out, A a) { out[0] = x[0] * a.a; }',
        "f",
        out_shape=lambda x: x,
        grid=1,
        block=1,
    )

    def f(x, a):
        return struct(jax.vmap(lambda x: kernel(x, x, a=2.0, n=7))(x), a=structured)

    printed = str(jax.make_jaxpr(f)(jnp.stack([x, y]), 2.0))
    assert " = cuda_kernel[saxpy<<<(2, 2), 256>>>(x, y, out, a=2.0, n=7) for each of 2] " in printed
    assert " = cuda_kernel[f<<<1, 1>>>(x, out, a=...)] " in printed
    assert "__global__" not in printed
    assert all(name not in printed for name in ("needs_devices", "CudaSource", "Rule("))
    # Programs that are made already print without their images.
    image = b"image" * 1000
    kernel = Kernel(image, "f", "f", ())
    launch = Node(kernel, (1, 1, 1), (1, 1, 1), (1, 1, 1), 0, False, ())
    program = Program("p", (), (4,), (), (launch,))
    results = (jax.core.ShapedArray((1,), np.dtype("float32")),)
    printed = str(
        jax.make_jaxpr(lambda: program_p.bind(program=program, results=results, uncaptured=False))()
    )
    assert "image" not in printed + repr(kernel) + repr(launch)
    assert "program=<program p, nodes: 1>" in printed


def test_the_order_of_keywords_specializes_nothing(xy):
    seen = []
    kernel = make_saxpy(grid=lambda x, y, *, a, n: seen.append(a) or jge.cdiv(n, 256))
    x, y = xy
    for traced in (False, True):
        f = jax.jit(lambda x, a: (kernel(x, y, a=a, n=1000), kernel(x, y, n=1000, a=a)))
        first, second = f(x, 2.0) if traced else f.__wrapped__(x, 2.0)
        np.testing.assert_array_equal(first, second)
        assert len(seen) == 1
        seen.clear()
    with jge.Encoder(jax.devices("cpu")[0]) as encoder:
        out = np.zeros_like(x)
        encoder.append(kernel, np.asarray(x), np.asarray(y), out, a=2.0, n=1000)
        encoder.append(kernel, np.asarray(x), np.asarray(y), out, n=1000, a=2.0)
    assert len(seen) == 1


def test_a_new_value_compiles_no_kernel(xy):
    kernel = make_saxpy()
    x, y = xy
    kernel(x, y, a=0.0, n=x.size)
    jge.reset_stats()
    for a in range(1, 6):
        kernel(x, y, a=float(a), n=x.size)
    assert jge.stats()["compiled"] == 0
    assert jge.stats()["images_loaded"] == 0


def test_two_threads_call_two_functions_at_once(saxpy, add_one):
    x = jnp.arange(100.0)
    f = jax.jit(lambda x: saxpy(x, x, a=2.0, n=x.size))
    g = jax.jit(lambda x: add_one(add_one(x, n=x.size), n=x.size))
    expected = {f: 3 * np.arange(100), g: np.arange(100) + 2}
    wrong = []

    def work(function):
        for _ in range(10_000):
            if not np.array_equal(function(x), expected[function]):
                wrong.append(function)

    threads = [threading.Thread(target=work, args=(function,)) for function in (f, g)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_debug_keeps_calls_out_of_command_buffers(saxpy, xy):
    def lowered():
        return jax.jit(lambda x, y: saxpy(x, y, a=4.0, n=x.size)).lower(*xy).as_text()

    with jge.options(debug=True):
        assert "jax_graphenc.uncaptured_program.v1" in lowered()
        np.testing.assert_allclose(saxpy(*xy, a=4.0, n=1000), 4 * xy[0] + xy[1], rtol=1e-6)
    assert "jax_graphenc.program.v1" in lowered()

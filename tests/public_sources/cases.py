"""Calls of public kernels with small inputs, and the same in numpy; by the end of a file's path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

# Takes a module, returns what its kernel gives and what is expected.
Case = Callable[[Any], tuple[Any, Any]]
CASES: dict[str, Case] = {}
RANDOM = np.random.default_rng(0)


def case(path: str) -> Callable[[Case], Case]:
    def add(f: Case) -> Case:
        CASES[path] = f
        return f

    return add


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


@case("wkv_cuda.cu")
def wkv(module: Any) -> tuple[Any, Any]:
    b, t, c = 2, 7, 8
    w, u, k, v = -np.exp(floats(c)), floats(c), floats(b, t, c), floats(b, t, c)
    kernel = module.kernel("kernel_forward<float>", out_shape=like(k), grid=b, block=c)
    numerator = denominator = np.zeros((b, c))
    rows = []
    for i in range(t):
        now = np.exp(u + k[:, i])
        rows.append((numerator + now * v[:, i]) / (denominator + now))
        numerator = np.exp(w) * numerator + np.exp(k[:, i]) * v[:, i]
        denominator = np.exp(w) * denominator + np.exp(k[:, i])
    return kernel(w, u, k, v, B=b, T=t, C=c), np.stack(rows, 1)


@case("flash.cu")
def attention(module: Any) -> tuple[Any, Any]:
    batch, heads, n, d, tile = 2, 2, 64, 16, 32
    q, k, v = (floats(batch, heads, n, d) for _ in range(3))
    kernel = module.kernel(
        "forward_kernel",
        params={"l": "inout", "m": "inout", "O": "inout"},
        grid=(batch, heads),
        block=tile,
        shared_mem=4 * (3 * tile * d + tile * tile),
    )
    row = np.zeros((batch, heads, n), np.float32)
    values = {"N": n, "d": d, "Tc": n // tile, "Tr": n // tile, "Bc": tile, "Br": tile}
    *_, out = kernel(q, k, v, row, row - np.inf, np.zeros_like(q), softmax_scale=d**-0.5, **values)
    scores = np.exp(q @ np.swapaxes(k, 2, 3) * d**-0.5)
    return out, scores / scores.sum(-1, keepdims=True) @ v


@case("softmax_forward.cu")
def softmax(module: Any) -> tuple[Any, Any]:
    x = floats(4, 70)
    kernel = module.kernel("softmax_forward_kernel1", out_shape=like(x), grid=1, block=32)
    e = np.exp(x - x.max(1, keepdims=True))
    return kernel(x, N=4, C=70), e / e.sum(1, keepdims=True)


@case("layernorm_forward.cu")
def layer_norm(module: Any) -> tuple[Any, Any]:
    x, weight, bias = floats(6, 64), floats(64), floats(64)
    row = jax.ShapeDtypeStruct((6,), np.float32)
    kernel = module.kernel(
        "layernorm_forward_kernel3", out_shape=(like(x), row, row), grid=6, block=32
    )
    mean, scale = x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)
    want = (x - mean[:, None]) * scale[:, None] * weight + bias
    return kernel(x, weight, bias, N=6, C=64), (want, mean, scale)


@case("attention_forward.cu")
def scores(module: Any) -> tuple[Any, Any]:
    b, t, c, heads = 2, 5, 8, 2
    x = floats(b, t, 3, heads, c // heads)
    kernel = module.kernel(
        "attention_query_key_kernel1",
        out_shape=jax.ShapeDtypeStruct((b, heads, t, t), np.float32),
        grid=1,
        block=128,
    )
    want = np.einsum("bthd,bshd->bhts", x[:, :, 0], x[:, :, 1]) / np.sqrt(c // heads)
    want = np.where(np.tril(np.ones((t, t), bool)), want, -np.inf)
    return kernel(x, B=b, T=t, C=c, NH=heads), want


@case("adamw.cu")
def adam(module: Any) -> tuple[Any, Any]:
    p, g, m, v = (np.abs(floats(50)) for _ in range(4))
    kernel = module.kernel(
        "adamw_kernel1",
        params={"params_memory": "inout", "m_memory": "inout", "v_memory": "inout"},
        grid=1,
        block=64,
    )
    rate, b1, b2, c1, c2, eps, decay = 0.1, 0.9, 0.99, 0.19, 0.02, 1e-8, 0.01
    got = kernel(
        *(p, g, m, v),
        num_parameters=50,
        learning_rate=rate,
        beta1=b1,
        beta2=b2,
        beta1_correction=c1,
        beta2_correction=c2,
        eps=eps,
        weight_decay=decay,
    )
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    return got, (p - rate * (m / c1 / (np.sqrt(v / c2) + eps) + decay * p), m, v)


@case("raymarching.cu")
def morton(module: Any) -> tuple[Any, Any]:
    x = RANDOM.integers(0, 128, (40, 3)).astype(np.int32)
    kernel = module.kernel(
        "kernel_morton3D", out_shape=jax.ShapeDtypeStruct((40,), np.int32), grid=1, block=64
    )
    want = [
        sum((int(c) >> i & 1) << 3 * i + a for i in range(7) for a, c in enumerate(r)) for r in x
    ]
    return kernel(x, N=40), np.array(want)


@case("reduction_kernel.cu")
def sums(module: Any) -> tuple[Any, Any]:
    x = floats(512)
    kernel = module.kernel(
        "reduce3<float>",
        params={"g_idata": "const float*"},
        out_shape=jax.ShapeDtypeStruct((2,), np.float32),
        grid=2,
        block=128,
        shared_mem=512,
    )
    return kernel(x, n=512), x.reshape(2, 256).sum(1)


@case("transpose.cu")
def transpose(module: Any) -> tuple[Any, Any]:
    x = floats(32, 64)
    kernel = module.kernel(
        "transposeNoBankConflicts",
        params={"idata": "const float*"},
        out_shape=jax.ShapeDtypeStruct((64, 32), np.float32),
        grid=(2, 1),
        block=(32, 16),
    )
    return kernel(x, width=64, height=32), x.T


@case("bodysystemcuda.cu")
def bodies(module: Any) -> tuple[Any, Any]:
    position, velocity = np.abs(floats(256, 4)), floats(256, 4)
    kernel = module.kernel(
        "integrateBodies<float>",
        params={"newPos": "float4*", "oldPos": "const float4*", "vel": "inout float4*"},
        out_shape=like(position),
        grid=1,
        block=256,
        shared_mem=256 * 16,
        globals={"softeningSquared": np.float32(0.01)},
    )
    new, v = kernel(
        *(position, velocity),
        deviceOffset=0,
        deviceNumBodies=256,
        deltaTime=0.01,
        damping=1.0,
        numTiles=1,
    )
    at, mass = position[:, :3].astype(np.float64), position[:, 3]
    r = at[None] - at[:, None]
    force = (r * (mass / ((r * r).sum(-1) + 0.01) ** 1.5)[..., None]).sum(1)
    moved = velocity[:, :3] + 0.01 * force
    return (new[:, :3], v[:, :3]), (at + 0.01 * moved, moved)


@case("histogram256.cu")
def histogram(module: Any) -> tuple[Any, Any]:
    x = RANDOM.integers(0, 2**32, 600, dtype=np.uint32)
    kernel = module.kernel(
        "histogram256Kernel",
        params={"d_Data": "const uint*"},
        out_shape=jax.ShapeDtypeStruct((2, 256), np.uint32),
        grid=2,
        block=192,
    )
    want = np.bincount(x.view(np.uint8), minlength=256)
    return np.asarray(kernel(x, dataCount=600)).sum(0), want


@case("convolutionSeparable.cu")
def convolution(module: Any) -> tuple[Any, Any]:
    x, weights = floats(8, 128), floats(17)
    kernel = module.kernel(
        "convolutionRowsKernel",
        params={"d_Src": "const float*"},
        out_shape=like(x),
        grid=(1, 2),
        block=(16, 4),
        globals={"c_Kernel": weights},
    )
    want = [np.convolve(row, weights, "same") for row in x]
    return kernel(x, imageW=128, imageH=8, pitch=128), np.stack(want)


@case("ball_query_gpu.cu")
def ball(module: Any) -> tuple[Any, Any]:
    points, centres = floats(2, 20, 3), floats(2, 5, 3)
    kernel = module.kernel(
        "query_ball_point_kernel",
        out_shape=jax.ShapeDtypeStruct((2, 5, 4), np.int32),
        zero_init=("idx",),
        grid=2,
        block=8,
    )
    want = np.zeros((2, 5, 4), np.int32)
    for b, j in np.ndindex(2, 5):
        near = np.nonzero(((points[b] - centres[b, j]) ** 2).sum(1) < 1.44)[0][:4]
        if len(near):
            want[b, j] = near[0]
            want[b, j, : len(near)] = near
    return kernel(centres, points, b=2, n=20, m=5, radius=1.2, nsample=4), want


@case("sampling_gpu.cu")
def gather(module: Any) -> tuple[Any, Any]:
    points, index = floats(2, 3, 9), RANDOM.integers(0, 9, (2, 4)).astype(np.int32)
    kernel = module.kernel(
        "gather_points_kernel",
        out_shape=jax.ShapeDtypeStruct((2, 3, 4), np.float32),
        grid=(2, 3),
        block=32,
    )
    want = np.take_along_axis(points, index[:, None], 2)
    return kernel(points, index, b=2, c=3, n=9, m=4), want


@case("knn.cu")
def nearest(module: Any) -> tuple[Any, Any]:
    a, b = floats(1, 6, 3), floats(1, 10, 3)
    shapes = (
        jax.ShapeDtypeStruct((1, 6, 2), np.float32),
        jax.ShapeDtypeStruct((1, 6, 2), np.int64),
    )
    kernel = module.kernel("KNearestNeighborKernelV0<float>", out_shape=shapes, grid=1, block=32)
    _, index = kernel(*(a, b, np.array([6]), np.array([10])), N=1, P1=6, P2=10, D=3, K=2, norm=2)
    distances = ((a[0, :, None] - b[0]) ** 2).sum(-1)
    return np.sort(index[0], 1), np.sort(np.argsort(distances, 1)[:, :2], 1)


@case("parallel.cu")
def sparse(module: Any) -> tuple[Any, Any]:
    dense = floats(10, 8) * (RANDOM.random((10, 8)) < 0.4)
    rows = np.concatenate([[0], np.cumsum((dense != 0).sum(1))]).astype(np.int32)
    columns, x = np.nonzero(dense)[1].astype(np.int32), floats(8)
    kernel = module.kernel(
        "spmv_csr", out_shape=jax.ShapeDtypeStruct((10,), np.float32), grid=2, block=32
    )
    return kernel(rows, columns, dense[dense != 0], x, num_rows=10), dense @ x


@case("ms_deform_attn_cuda.cu")
def deformable(module: Any) -> tuple[Any, Any]:
    # One level, one point at the centre of each query's pixel: it gathers the value there.
    h, w, heads, channels = 4, 4, 2, 3
    value = floats(1, h * w, heads, channels)
    ys, xs = np.divmod(RANDOM.integers(0, h * w, 5), w)
    where = np.stack([(xs + 0.5) / w, (ys + 0.5) / h], -1).astype(np.float32)
    where = np.broadcast_to(where[None, :, None, None, None], (1, 5, heads, 1, 1, 2))
    kernel = module.kernel(
        "ms_deformable_im2col_gpu_kernel<float>",
        out_shape=jax.ShapeDtypeStruct((1, 5, heads, channels), np.float32),
        grid=1,
        block=64,
    )
    got = kernel(
        *(value, np.array([[h, w]]), np.array([0]), np.ascontiguousarray(where)),
        np.ones((1, 5, heads, 1, 1), np.float32),
        n=5 * heads * channels,
        batch_size=1,
        spatial_size=h * w,
        num_heads=heads,
        channels=channels,
        num_levels=1,
        num_query=5,
        num_point=1,
    )
    return got, value[:, ys * w + xs]


def run(path: str, module: Any) -> bool | None:
    """Whether the kernel's values are those of numpy; None where there is no case."""
    found = next((f for end, f in CASES.items() if path.endswith(f"/{end}") or path == end), None)
    if found is None:
        return None
    got, want = found(module)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.asarray(a), b, rtol=2e-4, atol=2e-5),
        tuple(got) if isinstance(got, tuple | list) else (got,),
        want if isinstance(want, tuple) else (want,),
    )
    return True

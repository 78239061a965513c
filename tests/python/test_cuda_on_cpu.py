"""test_cuda_on_cpu.py: the kernels of tests/cuda_on_cpu, run on the CPU and held against numpy."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.compiler import host
from jax_graphenc.compiler.source import Image, Source

FOLDER = Path(__file__).parents[1] / "cuda_on_cpu"


@functools.cache
def image_of(name: str, checked: bool = False) -> Image:
    """A file's kernels, compiled together: an image of each would take a minute."""
    text = (FOLDER / name).read_text()
    names = re.findall(r"^KERNEL (?:__launch_bounds__\(.*?\) )?(\w+)", text, re.MULTILINE)
    source = Source(text, str(FOLDER / name), is_file=True)
    return host.compile_shared_object(source, names, checked=checked)


@dataclass(frozen=True)
class Case:
    """One kernel, which takes inputs, outputs and a count, in this order."""

    file: str
    kernel: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]  # as they are expected; they begin as zeros
    grid: Any = 1
    block: Any = 32
    n: int | None = None
    shared: int = 0
    tolerance: float = 0.0

    def run(self, checked: bool = False) -> list[np.ndarray]:
        """Runs it as any caller would, inside of XLA."""
        image = image_of(self.file + ".cu", checked)
        (entry,) = (e for e in image.entries if e.expression == self.kernel)
        params = {f"p{i}": kind for i, kind in enumerate(entry.types)}
        first = len(self.inputs)
        outputs = [f"p{i}" for i in range(first, first + len(self.outputs))]
        shapes = tuple(jax.ShapeDtypeStruct(np.shape(o), np.asarray(o).dtype) for o in self.outputs)
        kernel = jge.cuda_kernel(
            {"cpu": image.data},
            self.kernel,
            params=params,
            out_shape=lambda *_, **__: shapes if len(shapes) > 1 else shapes[0],
            grid=self.grid,
            block=self.block,
            shared_mem=self.shared,
            zero_init=outputs,
        )
        count = {} if self.n is None else {f"p{first + len(outputs)}": self.n}
        with jax.enable_x64(True):
            results = kernel(*self.inputs, **count)
        return [np.asarray(r) for r in (results if len(shapes) > 1 else [results])]


CASES: list[Case] = []


def case(file: str, kernel: str, inputs: Any, outputs: Any, **launch: Any) -> None:
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    CASES.append(Case(file, kernel, inputs, outputs, **launch))


rng = np.random.default_rng(6)
f4, f8, i4, f2 = np.float32, np.float64, np.int32, np.float16


def floats(*shape: int) -> np.ndarray:
    """Eighths from -8 to 8, whose sums and products are exact."""
    return (rng.integers(-64, 64, shape) / 8).astype(f4)


def ints(low: int, high: int, *shape: int) -> np.ndarray:
    return rng.integers(low, high, shape, dtype=i4)


def bits_of(rows: np.ndarray) -> np.ndarray:
    """Of rows of truth values, their bits as an int32, for each element of the row."""
    width = rows.shape[1]
    values = (rows.astype(np.uint64) << np.arange(width, dtype=np.uint64)).sum(1)
    return np.repeat(values.astype(np.uint32).view(i4), width)


def per_row(values: np.ndarray, width: int) -> np.ndarray:
    return np.repeat(values, width)


# ---- barriers ------------------------------------------------------------------------------------

x = floats(3, 128)
case("barriers", "reverse_block", x, x[:, ::-1], grid=3, block=128)
x = floats(4, 64) + np.array([[0], [9], [-9], [0]], f4)
votes = np.stack([(x > 0).sum(1), (x > 0).all(1), (x > 0).any(1)], 1).astype(i4)
case("barriers", "block_votes", x, votes, grid=4, block=64)
x = floats(128)
case(
    *("barriers", "early_return", x, np.concatenate([x[99::-1], np.zeros(28, f4)])),
    block=128, n=100,
)  # fmt: skip
x = floats(2, 100)
case("barriers", "prefix_sum", x, np.cumsum(x, 1), grid=2, block=100)
x = floats(2, 64) + 9
case("barriers", "barrier_in_a_function", x, x / x.sum(1)[:, None], grid=2, block=64)
x = floats(64, 64)
case("barriers", "transpose", x, x.T, grid=(2, 2), block=(32, 8), n=64)
d3 = np.arange(6 * 24, dtype=i4).reshape(6, 24)
case("barriers", "three_dimensions", (), d3[:, ::-1], grid=(3, 2), block=(2, 3, 4))
x = floats(5, 32)
y = x.copy()
for b in range(5):
    for _ in range(b % 3):
        y[b] += np.roll(y[b], -1)
case("barriers", "some_blocks", x, y, grid=5, block=32)
a, b = floats(16, 16), floats(16, 16)
case("barriers", "matrix_product", (a, b), a @ b, grid=(2, 2), block=(8, 8), n=16)

# ---- shared memory -------------------------------------------------------------------------------

x = floats(64)
case("shared", "static_kinds", x, 21 * x[::-1], block=64)
case("shared", "two_functions_two_arrays", (), np.full(32, 21, f4))
case("shared", "dynamic_floats", x, x[::-1], block=64, shared=256)
k = rng.permutation(64).astype(i4)
case("shared", "dynamic_carved_up", (x, k), x[np.argsort(k)], block=64, shared=512)
x = floats(32)
case("shared", "dynamic_outside", x, x[::-1] + x[5], shared=128)
x = floats(16)
case("shared", "dynamic_rows", x, x.reshape(4, 4).T.ravel(), block=16, shared=64)
x = floats(48).astype(f8)
case("shared", "dynamic_in_a_template", x, np.roll(x, -1), block=48, shared=384)

# ---- warps ---------------------------------------------------------------------------------------

x = floats(2, 32)
case("warps", "broadcast", x, np.repeat(x[:, 5:6], 32, 1), block=64)
case("warps", "scan_by_shuffle", x, np.cumsum(x, 1), block=64)
case("warps", "sum_by_shuffle", x.astype(f8), x.astype(f8).sum(1), block=64)
x = ints(-99, 99, 3, 32)
case("warps", "butterfly", x, np.repeat(x.max(1)[:, None], 32, 1), block=96)
x = ints(0, 1000, 64)
lane = np.arange(64)
case(
    "warps", "shuffle_in_parts", x,
    np.stack([
        x[lane // 8 * 8 + 3],
        x[np.where(lane % 8 < 2, lane, lane - 2)],
        x[np.where(lane % 4 + 3 < 4, lane + 3, lane).clip(0, 63)],
        x[lane ^ 5],
        x[np.where((lane ^ 9) <= (lane | 7), lane ^ 9, lane)],
    ]),
    block=64,
)  # fmt: skip
halves = x.reshape(4, 16) * np.array([[1], [2], [1], [2]])
case("warps", "divergent_halves", x, per_row(halves.sum(1), 16).astype(i4), block=64)
case("warps", "partial_warp", x[:40], per_row(x[:40].reshape(5, 8).sum(1), 8).astype(i4), block=40)
v = floats(3, 128)
case("warps", "sum_of_block", v, v.sum(1), grid=3, block=128)
v = floats(64)
case("warps", "synchronized_warp", v, 2 * v[lane ^ 3], block=64)
x = ints(-5, 8, 2, 32)
seven = np.stack([bits_of(x > 0), per_row((x == 7).any(1), 32), per_row((x < 7).all(1), 32)])
case("warps", "votes", x, seven.astype(i4), block=64)
positive = np.where(x > 0, (x > 0).sum(1)[:, None], -1).astype(i4)
case("warps", "active_lanes", x, positive, block=64)
x = np.stack([ints(0, 4, 32), np.full(32, 3, i4)])
equal = np.concatenate([
    np.array([(row == value) @ (1 << np.arange(32)) for value in row]).astype(np.uint32).view(i4)
    for row in x.astype(np.int64)
])  # fmt: skip
one_value = per_row(np.array([0, 1], i4), 32)
case("warps", "matches", x, np.stack([equal, -one_value, one_value]), block=64)
x = ints(0, 1 << 20, 2, 32)
folds = (np.add, np.minimum, np.maximum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
folded = np.stack([per_row(f.reduce(x, axis=1), 32) for f in folds]).astype(i4)
case("warps", "reductions", x, folded, block=64)
x = ints(-9, 9, 64)
kept = np.zeros(64, i4)
kept[: (x > 0).sum()] = x[x > 0]
case("warps", "compaction", x, (kept, (x > 0).sum(keepdims=True).astype(i4)), block=64)

# ---- atomics -------------------------------------------------------------------------------------

x = ints(0, 1000, 1000)
bins = np.bincount(x & 15, minlength=16).astype(i4)
case("atomics", "histogram", x, bins, grid=8, block=128, n=1000)
case("atomics", "histogram_in_shared_memory", x, bins, grid=8, block=128, n=1000)
many = (np.full(1, 1280, f4), np.full(1, 640, f8), np.array([7680, 2**32 - 2560], np.uint32))
case("atomics", "sums", (), many, grid=20, block=128)
x = ints(-1000, 1000, 256)
case("atomics", "extremes", x, np.array([x.min(), x.max()]), grid=2, block=128)
fold = [np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x), 0]
case("atomics", "bits", x, np.array(fold, i4), grid=2, block=128)
case("atomics", "wrapping", (), np.array([20 % 7, -20 % 7], np.uint32), block=20)
v = abs(floats(256)) + 1
case("atomics", "maximum_of_floats", v, v.max(keepdims=True), grid=2, block=128)
case("atomics", "lock", (), (np.zeros(1, i4), np.full(1, 256, i4)), grid=4, block=64)
case("atomics", "flag_of_another_thread", (), (np.ones(1, i4), np.full(1, 7, i4)), block=64)
v = floats(8, 32)
ends = (v.sum(1), v.sum(keepdims=True).reshape(1), np.full(1, 8, np.uint32))
case("atomics", "last_block_finishes", v, ends, grid=8)
case("atomics", "halves", (), np.full(1, 16, f2))

# ---- memory --------------------------------------------------------------------------------------

x = floats(64)
case(
    "memory", "read_only_loads", x, 0.25 * np.roll(x, 1) + 0.5 * x + 0.25 * np.roll(x, -1),
    block=64, n=64,
)  # fmt: skip
case("memory", "cache_hints", x, 3 * x, block=64)
case("memory", "vectors_of_four", x, x.reshape(16, 4)[:, ::-1], block=16)
d = floats(32, 2).astype(f8)
case("memory", "vectors_of_two", d, np.stack([d.sum(1), d[:, 1]], 1))
u = rng.integers(0, 256, (32, 4), np.uint8)
turned = np.stack([255 - u[:, 0], u[:, 1], u[:, 2], u[:, 1] // 2], 1)
case("memory", "vectors_of_bytes", u, turned)
v = floats(32, 3)
case("memory", "vectors_of_three", v, (v * v).sum(1))
v = floats(36)
windows = np.lib.stride_tricks.sliding_window_view(v, 5)
case("memory", "local_array", v, np.median(windows, 1).astype(f4))
v = floats(1000)
case("memory", "grid_stride", v, 2 * v, grid=3, block=64, n=1000)

# ---- language ------------------------------------------------------------------------------------

x = floats(32)
case("language", "lambda", x, 3 * x, n=3)
numbers = [0, 1]
for _ in range(18):
    numbers.append(numbers[-1] + numbers[-2])
case("language", "recursion", (), np.array(numbers, i4), block=20)
z = floats(32, 2)
squares = np.stack([z[:, 0] ** 2 - z[:, 1] ** 2, 2 * z[:, 0] * z[:, 1]], 1)
case("language", "struct_with_operators", z, squares)
case("language", "function_pointers", x, x * np.tile([2, 3], 16).astype(f4))
case("language", "template_recursion", x, x**3)
case("language", "assertion_that_holds", x, x)
case("language", "prints", (), np.arange(4, dtype=i4), block=4)

# ---- mathematics ---------------------------------------------------------------------------------

x = np.linspace(0.1, 3.7, 32, dtype=f4)
v = x.astype(f8)
erf, gamma = np.vectorize(math.erf), np.vectorize(math.gamma)
case(
    "mathematics", "fast_functions", x,
    np.stack([
        np.exp(v), np.log(v), np.sin(v) + np.cos(v), v**1.5, v / 3, v.clip(0, 1), v**-0.5,
        2**v + np.log2(v) + 10**v + np.log10(v),
    ]).astype(f4),
    tolerance=1e-5,
)  # fmt: skip
case(
    "mathematics", "exact_functions", x,
    np.stack([
        v**-0.5 + np.cbrt(v) ** -1,
        v * v + 1 + 3 * v,
        np.sin(np.pi * v) + np.cos(np.pi * v),
        erf(v) + (1 + erf(v / math.sqrt(2))) / 2 + gamma(v),
        np.hypot(v, 2) + math.sqrt(3) * v + 1 / np.hypot(v, 1),
        2 * np.minimum(v, 1) + 2 * np.maximum(v, 2) + v,
        np.trunc(v) + np.rint(v) + np.floor(v) + np.ceil(v) + np.fmod(x, f4(0.7)),
        8 * v - v + 1,
    ]).astype(f4),
    tolerance=1e-5,
)  # fmt: skip
k = ints(-(1 << 31), (1 << 31) - 1, 32)
k[:3] = [0, 1, -1]
text = [np.binary_repr(value, 32) for value in k]
case(
    "mathematics", "counting_bits", k,
    np.stack([
        [t.count("1") for t in text],
        [len(t) - len(t.lstrip("0")) for t in text],
        np.array([int(t[::-1], 2) for t in text], np.uint32).view(i4),
        [32 - t.rfind("1") if "1" in t else 0 for t in text],
        [(int(value) << 20 & (1 << 64) - 1).bit_count() for value in k],
        [64 - int(value).bit_length() if value >= 0 else 0 for value in k],
    ]).astype(i4),
)  # fmt: skip
w = k.astype(np.int64)
unsigned = w & 0xFFFFFFFF
case(
    "mathematics", "integers", k,
    np.stack([
        w << 20 >> 32,
        unsigned >> 1,
        (unsigned << 5 | unsigned >> 27) & 0xFFFFFFFF,
        k.byteswap(),
        abs(w - 7) + 1,
        3 * (w & 0xFFF),
    ]).astype(np.uint32).view(i4),
)  # fmt: skip
x = (rng.standard_normal(32) * 100).astype(f4)
most = np.where(x > 0, 2**31 - 1, -(2**31))
whole = [f(x.astype(f8)) for f in (np.rint, np.trunc, np.floor, np.ceil)]
case(
    "mathematics", "conversions", x,
    np.stack([*whole, x.view(i4), most]).astype(i4),
)  # fmt: skip
case(
    "mathematics", "double_precision", v,
    np.stack([
        v**-0.5 + v * v + 1,
        np.sin(np.pi * v) + erf(v) + v,
        np.exp(v) + np.log1p(v) + np.cbrt(v) + v**0.3,
    ]),
    tolerance=1e-13,
)  # fmt: skip

# ---- halves --------------------------------------------------------------------------------------

x = (rng.integers(1, 64, 32) / 8).astype(f2) * rng.choice([-1, 1], 32).astype(f2)
o = x[::-1]
case(
    "halves", "half_arithmetic", x,
    np.stack([
        x + o,
        x * o,
        (x.astype(f8) * o + x).astype(f2),
        (x - o) / f2(3),
        np.where(x < o, np.minimum(x, o), -np.maximum(x, o)),
        np.sqrt(abs(x)),
    ]),
)  # fmt: skip
pairs = x.reshape(16, 2)
fused = ((pairs + f2(1)).astype(f8) * pairs + [0.5, -0.5]).astype(f2)
case("halves", "pairs_of_halves", x, fused[:, ::-1], block=16)
case("halves", "half_sum_by_shuffle", x, np.full(32, x.astype(f4).sum(), f4))
bf16 = jax.numpy.bfloat16
x = x.astype(bf16)
o = x[::-1]
wide = x.astype(f8)
case(
    "halves", "bfloat16_arithmetic", x,
    np.stack([x + o, x * o, (wide * wide[::-1] + wide).astype(f4).astype(bf16), 3 * x]),
)  # fmt: skip
pairs = (rng.integers(1, 16, (32, 2)) / 4).astype(bf16)
products = (pairs[::-1].astype(f4) * pairs.astype(f4)).astype(bf16).astype(f4)
case("halves", "pairs_of_bfloat16", pairs, products.sum(1))

# ---- cooperative groups --------------------------------------------------------------------------

x = floats(64)
case("groups", "block_group", x, x[::-1], block=64)
sums = per_row(x.reshape(8, 8).sum(1) + 100 * np.arange(8), 8).astype(f4)
case("groups", "tile_shuffles", x, sums, block=64)
x = ints(-5, 8, 64)
rows = x.reshape(4, 16)
t = np.arange(64)
case(
    "groups", "tile_votes", x,
    np.stack([
        bits_of(rows > 0),
        per_row((rows == 7).any(1), 16),
        per_row((rows < 7).all(1), 16),
        x[t ^ 3] + x[np.where(t % 16 == 0, t, t - 1)],
        [((row == value) @ (1 << np.arange(16))) for row in rows for value in row],
    ]).astype(i4),
    block=64,
)  # fmt: skip
x = floats(2, 32)
case("groups", "tile_reductions", x, per_row(x.sum(1) + x.max(1), 32), block=64)
x = ints(0, 100, 8, 8)
running = np.cumsum(x, 1).astype(i4)
case("groups", "tile_scans", x, np.stack([running, running - x]), block=64)
x = x.ravel()
inner = x[t // 4 * 4 + 1] + 1000 * (t % 32 // 4)
case("groups", "tile_of_a_tile", x, inner.astype(i4), block=64)
x = ints(-3, 4, 2, 32)
where = x > 0
chosen = np.cumsum(where, 1) - 1 + 100 * where.sum(1)[:, None]
chosen = chosen + 10000 * np.array([[row[row > 0][0]] for row in x])
case("groups", "coalesced", x, np.where(where, chosen, -1).astype(i4), block=64)
alike = (x[:, :, None] == x[:, None, :]).sum(2) + 100 * (
    where[:, :, None] == where[:, None, :]
).sum(2)
case("groups", "partitions", x, alike.astype(i4), block=64)
case("groups", "grid_ranks", (), 96 + np.repeat(np.arange(3), 32).astype(i4), grid=3)


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("c", CASES, ids=lambda c: f"{c.file}-{c.kernel}")
def test_a_kernel_gives_what_numpy_gives(c: Case) -> None:
    compare(c, c.run())


FIRST = {c.file: c for c in reversed(CASES)}  # of each file


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    "c",
    [pytest.param(c, marks=() if c is FIRST[c.file] else pytest.mark.slow) for c in CASES],
    ids=lambda c: f"{c.file}-{c.kernel}",
)
def test_checks_find_nothing_in_what_is_right(c: Case) -> None:
    with jge.options(debug=True):
        if c.kernel == "early_return":
            with pytest.raises(jax.errors.JaxRuntimeError, match=r"28 of 128 have left the kernel"):
                c.run(checked=True)
        else:
            compare(c, c.run(checked=True))


def compare(c: Case, results: list[np.ndarray]) -> None:
    for result, expected in zip(results, c.outputs, strict=True):
        if c.tolerance:
            np.testing.assert_allclose(result, expected, rtol=c.tolerance, atol=c.tolerance)
        else:
            np.testing.assert_array_equal(result, np.asarray(expected))


def test_every_kernel_of_the_folder_is_run() -> None:
    there = {(path.stem, e.expression) for path in FOLDER.glob("*.cu")
             for e in image_of(path.name).entries}  # fmt: skip
    assert there == {(c.file, c.kernel) for c in CASES}
    assert len(there) >= 50


# ---- Shared memory behind macros and in included files -------------------------------------------

WHOLE = "extern __shared__ T name[]\n"
MACROS = {
    "a macro for all of it": f"#define SHARED(T, name) {WHOLE}",
    "a macro for a part": "#define EXTERN extern\n#define SHARED(T, name) \\\n"
    + WHOLE.replace("extern", "EXTERN"),
    "a macro for the rest": "#define LOCAL __shared__\n#define SHARED(T, name) "
    + WHOLE.replace("__shared__", "LOCAL"),
}
REVERSES = r"""extern "C" __global__ void k(const float* x, float* y) {
  SHARED(float, s);
  static __shared__ float copy[32];
  s[threadIdx.x] = x[threadIdx.x];
  copy[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[31 - threadIdx.x] * copy[threadIdx.x];
}
"""


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    ("where", "debug"),
    [
        *((where, False) for where in (*MACROS, "an included macro", "an included function")),
        ("an included function", True),
    ],
)
def test_dynamic_shared_memory_is_found(where: str, debug: bool, tmp_path: Path) -> None:
    text = MACROS.get(where, '#include "shared.h"\n') + REVERSES
    header = next(iter(MACROS.values()))
    if where == "an included function":
        header = """extern __shared__ float all[];
        __device__ float* get() { static __shared__ int n; n = 0; return all + n; }
        #define SHARED(T, name) T* name = get()\n"""
    (tmp_path / "shared.h").write_text(header)
    (tmp_path / "k.cu").write_text(text)
    kernel = jge.cuda_kernel(
        tmp_path / "k.cu", "k", out_shape=lambda x: x, grid=1, block=32, shared_mem=128
    )
    x = np.arange(32, dtype=f4)
    with jge.options(debug=debug):
        np.testing.assert_array_equal(kernel(x), x[::-1])


FORGETFUL = r"""
extern __shared__ float outside[];
extern "C" __global__ void k(const float* x, float* y, int n) {
  extern __shared__ float s[];
  if (n == 1) s[threadIdx.x] = x[threadIdx.x];
  if (n == 2) outside[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = n ? s[31 - threadIdx.x] : x[threadIdx.x];
}
"""
NO_SHARED = "uses dynamic shared memory, and the launch has none: pass shared_mem="


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    ("debug", "shared_mem", "message"),
    [
        (False, 0, f"k: {NO_SHARED}"),
        (True, 0, f"<k>:[56]: {NO_SHARED}.* in block \\(0,0,0\\), thread \\(0,0,0\\)"),
        (False, 16, "k: writes behind the 16 bytes of its dynamic shared memory"),
        (True, 16, "<k>:[56]: writes 4 bytes at offset 16 of 'dynamic shared memory'"),
    ],
)
def test_dynamic_shared_memory_that_was_not_asked_for(
    debug: bool, shared_mem: int, message: str
) -> None:
    kernel = jge.cuda_kernel(
        *(FORGETFUL, "k"), out_shape=lambda x, n: x, grid=1, block=32, shared_mem=shared_mem
    )
    x = np.arange(32, dtype=f4) + 1
    with jge.options(debug=debug):
        for n in (1, 2):
            with pytest.raises(jax.errors.JaxRuntimeError, match=message):
                kernel(x, n=n)
        np.testing.assert_array_equal(kernel(x, n=0), x)  # declared, and not used


@pytest.mark.usefixtures("cpu")
def test_lines_stay_where_macros_hide_shared_memory() -> None:
    text = MACROS["a macro for all of it"] + REVERSES.replace("copy[threadIdx.x] = 1", "wrong = 1")
    kernel = jge.cuda_kernel(text, "k", out_shape=lambda x: x, grid=1, block=32, shared_mem=128)
    with pytest.raises(jge.KernelCompileError, match=r":6:3: error: 'wrong'|:6:3: error: .wrong."):
        kernel(np.zeros(32, f4))


# ---- What ends a launch --------------------------------------------------------------------------

ENDINGS = r"""
#include <assert.h>
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  s[t] = x[t];
  if (n == 0) {
    __syncthreads();
    assert(t != 40 || blockIdx.x != 1);
  } else if (n == 1) {
    if (t < 5) __syncthreads(); else s[t] = __shfl_sync(~0u, s[t], 0);
  } else if (n == 2) {
    if (t == 33) __syncwarp(1);
  } else if (n == 3) {
    if (t % 2 == 0) __syncthreads();
    if (t % 2 == 0) __trap();
  }
  __syncthreads();
  y[blockIdx.x * blockDim.x + t] = s[63 - t];
}
"""


@pytest.fixture(scope="module")
def ending() -> Any:
    x = np.arange(64, dtype=f4)
    kernel = jge.cuda_kernel(
        ENDINGS, "k", out_shape=jax.ShapeDtypeStruct((2, 64), f4), grid=2, block=64
    )
    return lambda n: np.asarray(kernel(x, n=n))


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize(
    ("n", "message"),
    [
        (0, r":9: assertion `t != 40 .*' failed in block \(1,0,0\), thread \(40,0,0\)"),
        (
            1,
            r":11: __shfl_sync\(\) never ends: of 64 threads 27 wait there, "
            r"37 at __syncthreads\(\) \(.*:11\), 0 have left the kernel in block \(0,0,0\)",
        ),
        (2, r":13: lane 1 calls __syncwarp\(\) with the mask 0x00000001, in which it is not"),
        (3, r":16: __trap\(\) in block \(0,0,0\), thread \(0,0,0\)"),
    ],
)
def test_a_launch_that_fails_says_where_and_the_next_one_runs(
    ending: Any, n: int, message: str
) -> None:
    for _ in range(3):
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            ending(n)
    np.testing.assert_array_equal(ending(9), np.tile(np.arange(64)[::-1], (2, 1)))


# ---- Integer division ----------------------------------------------------------------------------

DIVIDE = r"""
template <class T> __global__ void divide(const T* x, const T* w, T* quotient, T* remainder) {
  quotient[threadIdx.x] = x[threadIdx.x] / w[threadIdx.x];
  remainder[threadIdx.x] = x[threadIdx.x] % w[threadIdx.x];
}
"""
least4, least8 = -(1 << 31), -(1 << 63)
# Dividend, divisor, quotient, remainder: as an H200 gave them.
DIVISIONS = {
    "int8": [(7, 0, -1, -1), (-7, 0, -1, -1), (-128, -1, -128, 0), (-7, 2, -3, -1)],
    "uint8": [(7, 0, 255, 255), (0, 0, 255, 255), (200, 7, 28, 4)],
    "int16": [(7, 0, -1, -1), (-7, 0, -1, -1), (-(1 << 15), -1, -(1 << 15), 0), (-7, 2, -3, -1)],
    "uint16": [(7, 0, 65535, 65535), (0, 0, 65535, 65535), (65535, 256, 255, 255)],
    "int32": [
        *((7, 0, -1, -1), (-7, 0, -1, -1), (0, 0, -1, -1), (least4, 0, -1, -1)),
        *((least4, -1, least4, 0), (7, -1, -7, 0), (-7, 2, -3, -1), (least4, 3, -715827882, -2)),
    ],
    "uint32": [
        (7, 0, 2**32 - 1, 2**32 - 1),
        (0, 0, 2**32 - 1, 2**32 - 1),
        (2**32 - 1, 2, 2**31 - 1, 1),
    ],
    "int64": [
        *((7, 0, 2**32 - 1, 2**32 - 1), (-7, 0, -1, -1), (0, 0, 2**32 - 1, 2**32 - 1)),
        *((1 << 40, 0, -1, -1), (least8, 0, -1, -1), (least8, -1, least8, 0), (7, -1, -7, 0)),
        (-(1 << 40), 1 << 20, -(1 << 20), 0),
    ],
    "uint64": [
        *((7, 0, 2**32 - 1, 2**32 - 1), (1 << 40, 0, 2**64 - 1, 2**64 - 1)),
        *((2**64 - 1, 0, 2**64 - 1, 2**64 - 1), (2**64 - 1, 1 << 32, 2**32 - 1, 2**32 - 1)),
    ],
}
C_NAMES = {"int8": "signed char", "uint8": "unsigned char", "int16": "short", "int32": "int",
           "uint16": "unsigned short", "uint32": "unsigned", "int64": "long long",
           "uint64": "unsigned long long"}  # fmt: skip


@functools.cache
def division(debug: bool) -> Image:
    names = [f"divide<{name}>" for name in C_NAMES.values()]
    return host.compile_shared_object(Source(DIVIDE, "<divide>"), names, checked=debug)


def divide(name: str, x: Any, w: Any, debug: bool) -> list[np.ndarray]:
    image = division(debug)
    (entry,) = (e for e in image.entries if e.expression == f"divide<{C_NAMES[name]}>")
    kernel = jge.cuda_kernel(
        {"cpu": image.data},
        entry.expression,
        params={f"p{i}": kind for i, kind in enumerate(entry.types)},
        out_shape=lambda x, w: (x, x),
        grid=1,
        block=x.size,
    )
    with jax.enable_x64(True), jge.options(debug=debug):
        return [np.asarray(result) for result in kernel(x, w)]


@pytest.mark.usefixtures("cpu")
@pytest.mark.skipif("clang" in host.identity(), reason="GCC's assembler; clang ends the launch")
@pytest.mark.parametrize("name", DIVISIONS)
def test_integer_division_gives_what_a_gpu_gives(name: str) -> None:
    x, w, quotient, remainder = np.array(DIVISIONS[name], name).T
    results = divide(name, x, w, debug=False)
    np.testing.assert_array_equal(results, [quotient, remainder])


@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("name", DIVISIONS)
def test_debug_mode_finds_integer_divisions_that_have_no_result(name: str) -> None:
    for row in DIVISIONS[name]:
        if row[:2] in ((least4, -1), (least8, -1)) and "clang" in host.identity():
            continue  # ends the process
        x, w = np.array([row[:2]], name).T
        if 0 in w or row in ((least4, -1, least4, 0), (least8, -1, least8, 0)):
            what = "integer division by zero" if 0 in w else "the least integer is divided by -1"
            with pytest.raises(jax.errors.JaxRuntimeError, match=f"<divide>:3: {what} in block"):
                divide(name, x, w, debug=True)
        else:
            np.testing.assert_array_equal(divide(name, x, w, debug=True), [[row[2]], [row[3]]])


@pytest.mark.usefixtures("cpu")
def test_a_divisor_may_be_looked_at_afterwards() -> None:
    kernel = jge.cuda_kernel(
        r"""extern "C" __global__ void k(const int* x, const int* w, int* y) {
          int quotient = x[threadIdx.x] / w[threadIdx.x];
          if (w[threadIdx.x] == 0) quotient = 77;
          y[threadIdx.x] = w[threadIdx.x] ? quotient : quotient + x[threadIdx.x] % w[threadIdx.x];
        }""",
        "k", out_shape=lambda x, w: x, grid=1, block=2,
    )  # fmt: skip
    np.testing.assert_array_equal(kernel(np.array([6, 6], i4), np.array([0, 2], i4)), [76, 3])


# ---- Small numbers -------------------------------------------------------------------------------


@pytest.mark.usefixtures("cpu")
def test_subnormal_numbers_are_kept_wherever_a_kernel_runs() -> None:
    """As on a GPU; XLA flushes them in its own code on the CPU."""
    kernel = jge.cuda_kernel(
        r"""extern "C" __global__ void k(const float* x, float* y, float a) {
          y[threadIdx.x] = x[threadIdx.x] * a;
        }""",
        "k", out_shape=lambda x: x, grid=1, block=4,
    )  # fmt: skip
    x = np.array([1e-40, 1e-39, 2e-38, 1.0], f4)
    expected = x * f4(0.5)
    assert expected[0] != 0
    outside = np.zeros(4, f4)
    with jge.Encoder() as encoder:
        encoder.append(kernel, x, outside, a=0.5)
    for got in (
        outside,
        kernel(x, a=0.5),
        jax.jit(lambda x: kernel(x, a=0.5))(x),
        jax.jit(jge.graph(lambda x: kernel(x, a=0.5)))(x),
    ):
        np.testing.assert_array_equal(np.asarray(got).view(i4), expected.view(i4))


# ---- Accesses and barriers that are checked ------------------------------------------------------

WRONG = r"""
__device__ float table[8];
__device__ void put(float* at, float value) { *at = value; }
extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ float s[64];
  extern __shared__ float d[];
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float own[4] = {1, 2, 3, 4};
  if (n == 0) y[i + 1] = x[i];
  if (n == 1) y[i] = __ldg(&x[i - 1]);
  if (n == 2 && t > 62) s[t + 1] = x[i];
  if (n == 3 && t > 62) d[t + 1] = x[i];
  if (n == 4) ((float*)x)[i] = 1;
  if (n == 5) table[t / 8 + 1] = 0;
  if (n == 6) put(&y[i] + 500, 1);
  if (n == 7) atomicAdd(&s[t - 1], 1.0f);
  if (n == 8 && t < 61) __syncthreads();
  if (n == 9 && blockIdx.x == 1 && t > 60) return;
  s[t] = x[i] + own[(n + t) % 4] * 0;
  d[t] = x[i];
  __syncthreads();
  y[i] = s[63 - t] + d[63 - t] + table[t % 8];
}
"""


@pytest.mark.usefixtures("cpu")
@pytest.mark.skipif("clang" in host.identity(), reason="GCC's checks")
@pytest.mark.parametrize(
    ("n", "message"),
    [
        (
            0,
            r"9: writes 4 bytes at offset 512 of 'y' \(512 bytes\) in block \(1,0,0\), .*\(63,",
        ),
        (1, r"10: reads 4 bytes at offset -4 of 'x' \(512 bytes\) in block \(0,0,0\), .*\(0,0,0\)"),
        (
            2,
            r"11: writes 4 bytes at offset 256 of 's' \(256 bytes\) in block \(0,0,0\), .*\(63,",
        ),
        (3, r"12: writes 4 bytes at offset 256 of 'dynamic shared memory' \(256 bytes\)"),
        (4, r"13: writes 4 bytes at offset 0 of 'x' \(512 bytes, read only\)"),
        (5, r"14: writes 4 bytes at offset 32 of 'table' \(32 bytes\)"),
        (6, r"3: writes 4 bytes at offset 2000 of 'y' \(512 bytes\)"),
        (7, r"16: (?:reads|writes) 4 bytes at offset -4 of 's' \(256 bytes\)"),
        (
            8,
            r"17: __syncthreads\(\) is not reached by all threads of the block: 3 of 64 wait at "
            r"<k>:21 in block \(0,0,0\)",
        ),
        (
            9,
            r"21: __syncthreads\(\) is not reached by all threads of the block: 3 of 64 have left "
            r"the kernel in block \(1,0,0\)",
        ),
    ],
)
def test_debug_mode_finds_wrong_accesses_and_barriers(n: int, message: str) -> None:
    x = np.arange(128, dtype=f4)
    kernel = jge.cuda_kernel(
        *(WRONG, "k"), out_shape=lambda x, n: x, grid=2, block=64, shared_mem=256
    )
    with jge.options(debug=True):
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"kernel 'k' .*<k>:{message}"):
            kernel(x, n=n)
        np.testing.assert_array_equal(kernel(x, n=99), 2 * x.reshape(2, 64)[:, ::-1].ravel())


@pytest.mark.usefixtures("cpu")
@pytest.mark.skipif("clang" in host.identity(), reason="GCC's checks")
def test_debug_mode_tells_the_thread_of_a_kernel_that_is_a_plain_loop() -> None:
    kernel = jge.cuda_kernel(
        r"""extern "C" __global__ void twice(const float* x, float* out) {
              int i = blockIdx.x * blockDim.x + threadIdx.x;
              out[i] = 2 * x[i];
            }""",
        "twice",
        out_shape=lambda x: x,
        grid=2,
        block=32,
    )
    place = r"offset 160 of 'x' \(160 bytes\) in block \(1,0,0\), thread \(8,0,0\)"
    with jge.options(debug=True), pytest.raises(jax.errors.JaxRuntimeError, match=place):
        kernel(np.ones(40, f4))

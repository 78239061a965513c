"""examples/gallery: twelve kernels against jax.numpy, on the device that JAX has.

Errors are relative to the largest element of what jax.numpy makes in double precision of the same
inputs; `tolerance` in the gallery says what is accepted of each dtype, and why.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.compiler import nvrtc_library

pytest.importorskip("rich", reason="needs the demo extra")

FOLDER = Path(__file__).parents[2] / "examples" / "gallery"
# The smallest that there are; several tiles or blocks, of which the last is not full, in all
# directions; and what goes another way in the code.
SIZES: dict[str, list[tuple[int, ...]]] = {
    "transpose": [(1, 1), (45, 70)],
    "reduction": [(1,), (1003,), (20_002,)],
    "scan": [(1,), (1003,), (20_002,)],
    "histogram": [(4,), (5003,)],
    "softmax": [(1, 1), (5, 301)],
    "rms_norm": [(1, 1), (5, 301)],
    "matmul": [(1, 1, 1), (70, 65, 37)],
    "csr_matvec": [(1, 1, 1), (301, 200, 5), (64, 500, 40)],
    "n_body": [(1,), (301,)],
    "stencil": [(1, 1, 1), (35, 11, 37)],
    "d2q9": [(1, 1), (11, 70)],
    "fdtd": [(3, 3), (19, 37)],
}


@pytest.fixture(scope="module", autouse=True)
def folder():
    """As if it were run from there."""
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def gallery(folder) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery", FOLDER / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def dtypes_of(name: str) -> tuple[str, ...]:
    """Read from the text, since tests are collected before anything is imported."""
    (line,) = re.findall(r"^DTYPES = (.*)", (FOLDER / f"{name}.py").read_text(), re.MULTILINE)
    return tuple(re.findall(r"\w+", line))


def quick(condition: bool) -> Any:
    """The mark of what has a like in the quick tests, unless it is that one."""
    return () if condition else pytest.mark.slow


CASES = [
    pytest.param(
        *(name, dtype, size),
        id=f"{name}-{dtype}-{'x'.join(map(str, size))}",
        marks=quick(dtype == "float32" and size == sizes[1]),
    )
    for name, sizes in SIZES.items()
    for dtype in dtypes_of(name)
    for size in (sizes if dtype == "float32" else sizes[1:2])
]


def function_of(module: ModuleType) -> Any:
    return getattr(module, module.__name__)


def check(gallery: ModuleType, name: str, dtype: str, size: tuple[int, ...]) -> None:
    module = gallery.load(name)
    arrays = gallery.inputs(module, dtype, size)
    assert gallery.relative_error(module, arrays) <= gallery.tolerance(module, dtype)


def test_all_are_tested(gallery):
    files = {path.stem for path in FOLDER.glob("*.py")} - {"__main__"}
    assert files == set(gallery.NAMES) == set(SIZES)
    assert len(files) == 12


@pytest.mark.parametrize(("name", "dtype", "size"), CASES)
def test_agrees_with_jax_numpy(gallery, name, dtype, size):
    check(gallery, name, dtype, size)


@pytest.mark.parametrize("name", [pytest.param(n, marks=quick(n == "fdtd")) for n in SIZES])
@pytest.mark.usefixtures("cpu")
def test_stays_inside_of_its_arrays(gallery, name):
    """Where every access and barrier is checked."""
    with jge.options(debug=True):
        check(gallery, name, dtypes_of(name)[-1], SIZES[name][-1])


# ---------------------------------------------------------------------- as functions of JAX's


@pytest.mark.parametrize("name", ["softmax", "transpose", "reduction", "csr_matvec", "fdtd"])
def test_batches(gallery, name):
    """One launch for more rows or layers, a launch for each, regions; and what is not batched."""
    module = gallery.load(name)
    size = SIZES[name][1]
    one = gallery.inputs(module, "float32", size)
    batched = [i for i, x in enumerate(one) if jnp.issubdtype(x.dtype, jnp.floating)]
    arrays = [jnp.stack([x, 2 * x, x + 1]) if i in batched else x for i, x in enumerate(one)]
    axes = [0 if i in batched else None for i in range(len(one))]
    got = jax.jit(jax.vmap(function_of(module), axes))(*arrays)
    wanted = jax.jit(jax.vmap(module.reference, axes))(*map(gallery.widened, arrays))
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        scale = np.abs(w).max()
        np.testing.assert_allclose(g, w, rtol=0, atol=scale * gallery.tolerance(module, "float32"))
    if name in ("softmax", "transpose"):
        jge.reset_stats()
        with jge.options(use_graphs=False):
            jax.block_until_ready(jax.jit(jax.vmap(function_of(module)))(*arrays))
        assert jge.stats()["nodes"] == 1


def test_several_in_one_region(gallery):
    """Kernels of five files as one custom call: the same to the bit."""
    transpose, softmax, matmul, rms_norm, scan = map(
        function_of, map(gallery.load, ("transpose", "softmax", "matmul", "rms_norm", "scan"))
    )

    def f(x, w):
        y = softmax(matmul(rms_norm(x, w), transpose(x)))
        return scan(y.reshape(-1)), y

    x, w = gallery.inputs(gallery.load("rms_norm"), "float32", (33, 70))
    region = jax.jit(jge.graph(f, strict=True)).lower(x, w).compile()
    assert region.as_text().count('custom_call_target="jax_graphenc.') == 1
    for got, wanted in zip(region(x, w), jax.jit(f)(x, w), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert abs(float(region(x, w)[0][-1]) - 33) < 1e-4  # rows of a softmax


# ---------------------------------------------------------------------- derivatives


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(d, marks=quick(d == "float32")) for d in ("float32", "float64", "bfloat16")],
)
@pytest.mark.parametrize("size", [(5, 301), (600, 3)], ids=["wide", "more rows than parts"])
def test_the_gradient_of_the_norm(gallery, dtype, size):
    module = gallery.load("rms_norm")
    x, w = gallery.inputs(module, dtype, size)
    weights = np.random.default_rng(1).standard_normal(size)

    def loss(norm):
        return lambda x, w: jnp.sum(weights.astype(x.dtype).astype(weights.dtype) * norm(x, w))

    got = jax.jit(jax.grad(loss(module.rms_norm), (0, 1)))(x, w)
    # The cotangent is rounded to the dtype on its way into the kernel.
    weights = np.asarray(jnp.asarray(weights, dtype).astype(jnp.float64))
    wanted = jax.jit(jax.grad(loss(module.reference), (0, 1)))(*map(gallery.widened, (x, w)))
    for g, d in zip(got, wanted, strict=True):
        scale = np.abs(d).max()
        off = np.abs(np.asarray(g).astype(np.float64) - d).max()
        assert off <= scale * gallery.tolerance(module, dtype)


def test_rules_by_hand_against_finite_differences(gallery):
    norm, stencil = map(gallery.load, ("rms_norm", "stencil"))
    jge.testing.check_kernel(norm.rms_norm, *gallery.inputs(norm, "float64", (3, 70)))
    jge.testing.check_kernel(stencil.stencil, *gallery.inputs(stencil, "float64", (3, 9, 33)))


# ---------------------------------------------------------------------- what is special


def test_softmax_of_infinities_and_no_numbers(gallery):
    x = np.zeros((5, 300), np.float32)
    x[0, 7] = -np.inf
    x[1, :] = -np.inf
    x[2, 299] = np.nan
    x[3, :] = 1e30
    softmax = gallery.load("softmax")
    np.testing.assert_allclose(softmax.softmax(x), softmax.reference(x), rtol=1e-6)


def test_a_sum_is_the_same_in_every_run(gallery):
    module = gallery.load("reduction")
    (x,) = gallery.inputs(module, "float32", (20_002,))
    assert len({float(module.reduction(x)) for _ in range(3)}) == 1


def test_there_is_no_field_along_walls_that_conduct(gallery):
    module = gallery.load("fdtd")
    e, hx, hy = map(np.asarray, module.fdtd(*gallery.inputs(module, "float64", (19, 37))))
    for along in (e[0], e[-1], e[:, 0], e[:, -1]):
        assert not along.any()
    assert min(np.abs(field).max() for field in (e, hx, hy)) > 0.1


def test_the_lattice_loses_no_mass(gallery):
    module = gallery.load("d2q9")
    f, solid = gallery.inputs(module, "float64", (11, 70))
    np.testing.assert_allclose(jnp.sum(module.d2q9(f, solid)), jnp.sum(f), rtol=1e-13)


# ---------------------------------------------------------------------- the gallery itself


def test_the_table(gallery, capsys):
    assert gallery.main(["histogram", "--size", "small"]) == 0
    printed = capsys.readouterr()
    rows = [re.findall(r"[\w.+-]+", line) for line in printed.out.splitlines() if "│" in line]
    assert [row[:-4] for row in rows] == [["histogram", "float32"], ["float64"], ["bfloat16"]]
    for row in rows:
        assert row[-4] == "0"
        assert all(float(number) > 0 for number in row[-3:])
    assert not printed.err


def test_a_wrong_kernel_is_noticed(gallery, monkeypatch, capsys):
    module = gallery.load("transpose")
    right = module.transpose
    monkeypatch.setattr(module, "transpose", lambda x: right(x) + jnp.nan)
    monkeypatch.setattr(module, "DTYPES", ("float32", "bfloat16"))
    assert gallery.main(["transpose", "--size", "small"]) == 1
    wanted = "too far from jax.numpy: transpose of float32, transpose of bfloat16\n"
    assert capsys.readouterr().err == wanted
    with pytest.raises(SystemExit):
        gallery.main(["nothing"])
    assert "no kernel nothing" in capsys.readouterr().err


@pytest.mark.parametrize("name", SIZES)
def test_compiles_for_gpus(gallery, name):
    """For an H100, by NVRTC; needs no GPU."""
    try:
        nvrtc_library.version()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    module = gallery.load(name)
    arrays = gallery.inputs(module, dtypes_of(name)[-1], SIZES[name][1])
    with jge.options(cuda_targets="sm_90a"):
        exported = jax.export.export(
            jax.jit(function_of(module)),
            platforms=["cuda"],
            disabled_checks=jge.export_checks(),
        )(*arrays)
    assert re.search(r"custom_call @jax_graphenc\.\w+\.v1", exported.mlir_module())

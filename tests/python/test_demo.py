"""examples/perona_malik.py: smooths, keeps edges, agrees with jax.numpy, and says when not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest

import jax_graphenc as jge

Image = pytest.importorskip("PIL.Image", reason="needs the demo extra")
matplotlib = pytest.importorskip("matplotlib", reason="needs the demo extra")
pytest.importorskip("rich", reason="needs the demo extra")

EXAMPLE = Path(__file__).parents[2] / "examples" / "perona_malik.py"
HEIGHT, WIDTH = 75, 53  # no multiples of the block


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    matplotlib.use("Agg")
    spec = importlib.util.spec_from_file_location("perona_malik", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def photograph(tmp_path: Path) -> Path:
    """A piece of the photograph that the demo shows."""
    from matplotlib.cbook import get_sample_data

    whole = Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False))
    path = tmp_path / "crop.png"
    whole.crop((200, 150, 200 + WIDTH, 150 + HEIGHT)).save(path)
    return path


def step_with_noise() -> tuple[np.ndarray, np.ndarray]:
    """Dark on the left, bright on the right; and the same with noise. Planes, 0 to 1."""
    clean = np.full((3, HEIGHT, WIDTH), 0.25, np.float32)
    clean[:, :, WIDTH // 2 :] = 0.75
    noise = np.random.default_rng(1).normal(0, 0.03, clean.shape)
    return clean, (clean + noise).astype(np.float32)


def test_agrees_with_jax_numpy(demo, photograph):
    rgb = demo.load(photograph, noise=0.05)
    assert rgb.shape == (3, HEIGHT, WIDTH)
    cuda = jax.jit(demo.smooth, static_argnums=1)(rgb, 20)
    reference = jax.jit(demo.smooth_reference, static_argnums=1)(rgb, 20)
    assert np.abs(cuda - reference).max() < 1e-5
    assert np.abs(cuda - rgb).max() > 0.05


def test_evens_out_noise_and_keeps_the_edge(demo):
    clean, noisy = step_with_noise()
    result = np.asarray(demo.smooth(noisy, 100))
    assert np.std(result - clean) < np.std(noisy - clean) / 3
    middle = WIDTH // 2
    assert (result[:, :, middle] - result[:, :, middle - 1]).min() > 0.4


def test_loses_and_makes_no_light(demo):
    _, noisy = step_with_noise()
    result = demo.smooth(noisy, 50)
    np.testing.assert_allclose(np.mean(result, (1, 2)), noisy.mean((1, 2)), atol=1e-5)


def test_the_region_is_the_same_to_the_bit(demo, photograph):
    rgb = demo.load(photograph, noise=0.05)
    region = jge.graph(demo.smooth, static_argnums=1)
    np.testing.assert_array_equal(region(rgb, 20), jax.jit(demo.smooth, static_argnums=1)(rgb, 20))


def test_says_where_the_kernels_came_from(demo, photograph, tmp_path, capsys):
    arguments = ["--image", str(photograph), "--iterations", "1", "--out", str(tmp_path / "a.png")]
    with jge.options(cache_dir=tmp_path / "cache"):
        for where in ("compiled", "from cache"):
            jge.clear_caches()
            assert demo.main(arguments) == 0
            assert f"diffuse: {where}\n" in capsys.readouterr().out


def test_shows_and_writes_what_it_did(demo, photograph, tmp_path, capsys):
    out = tmp_path / "smooth.png"
    assert demo.main(["--image", str(photograph), "--iterations", "4", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "53 x 75 pixels" in printed.out
    assert "2 x 5 blocks of 32 x 16 threads" in printed.out
    assert "4 iterations, 12 kernels" in printed.out
    rows = {line.split()[0]: line.split()[1:2] for line in printed.out.splitlines() if line}
    assert [rows[way] for way in ("jax.jit", "jge.graph", "jax.numpy")] == [["3"], ["1"], ["none"]]
    assert "nodes 12" in printed.out
    # No progress and no colours where there is no terminal.
    assert "getting ready" not in printed.out
    assert "\x1b" not in printed.out
    assert not printed.err

    picture = Image.open(out).convert("RGB")
    assert picture.width == 1800
    assert picture.height == pytest.approx(600 * (1 + 0.75) * HEIGHT / WIDTH + 37.5, abs=2)
    for column in range(3):
        for top, bottom in ((0.15, 0.5), (0.7, 0.95)):
            panel = picture.crop(
                (
                    600 * column + 100,
                    int(top * picture.height),
                    600 * column + 500,
                    int(bottom * picture.height),
                )
            )
            assert np.std(panel) > 5, f"nothing is drawn in column {column}"


@pytest.mark.parametrize("error", [2e-4, np.nan], ids=["wrong", "nan"])
def test_fails_when_the_kernels_are_wrong(demo, photograph, tmp_path, monkeypatch, capsys, error):
    diffuse = demo.diffuse
    monkeypatch.setattr(
        demo, "diffuse", lambda *inputs, **values: diffuse(*inputs, **values) + error
    )
    arguments = ["--image", str(photograph), "--iterations", "1"]
    assert demo.main([*arguments, "--out", str(tmp_path / "wrong.png")]) == 1
    assert "disagree" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--iterations", "0"], "--iterations: 1 or more is expected"),
        (["--image", "missing.png"], "--image: "),
        (["--image", str(EXAMPLE)], "--image: cannot identify image file"),
        (["--out", "missing/demo.png"], "--out: there is no folder missing"),
    ],
)
def test_refuses_bad_arguments(demo, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        demo.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err

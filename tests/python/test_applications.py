"""The larger examples: each runs, holds its own results against others, and draws a picture."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# What each prints of its checks; the exit status says whether they hold.
CHECKS = {
    "lattice_boltzmann": ("difference", "mass", "Strouhal"),
    "conjugate_gradient": ("residual", "elimination", "heat"),
    "train_network": ("gradients", "known"),
}


@pytest.fixture
def load(monkeypatch):
    """Imports an example by its name."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_runs_checks_and_draws(name, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="needs the demo extra")
    out = tmp_path / "picture.png"
    run = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", "--quick", "--out", out],
        # Another process may hold most of a GPU's memory.
        env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert not run.stderr  # no progress where there is no terminal, and no warning
    printed = {line.split()[0]: line for line in run.stdout.splitlines() if line}
    for check in CHECKS[name]:
        assert "accepted" in printed[check] or "expected" in printed[check]
    assert printed["jax.jit"].endswith(("ms", "million"))
    assert "jge.graph" in printed
    assert printed["picture"].split()[1] == str(out)
    pixels = np.asarray(image.open(out).convert("L"))
    assert min(pixels.shape) > 400
    assert pixels.std() > 20


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--size", "0"], "--size: "),
        (["--steps", "1"], "--steps: "),
        (["--quick", "--out", "missing/a.png"], "--out: there is no folder missing"),
    ],
)
def test_refuses_bad_arguments(load, name, arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        load(name).parse(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", CHECKS)
def test_says_where_matplotlib_is_missing(load, name, monkeypatch):
    def draw(out):
        import matplotlib.figure  # noqa: F401

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    said = load(name).draw_if_possible(Path("picture.png"), draw)
    assert said.startswith("none was drawn: matplotlib")

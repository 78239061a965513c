"""examples/batched_grid.py: agrees with jax.numpy, and shows one launch for a batch."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "batched_grid.py"


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("batched_grid", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.usefixtures("cpu")
def test_one_launch_instead_of_one_per_element(example, capsys):
    assert example.main() == 0
    lines = capsys.readouterr().out.splitlines()
    counts = [line.split(" nodes")[0].split()[-1] for line in lines]
    assert counts == ["24"] * 3 + ["1"] * 3


@pytest.mark.usefixtures("cpu")
def test_a_wrong_result_is_noticed(example, monkeypatch, capsys):
    monkeypatch.setattr(example, "CUDA", example.CUDA.replace("4 * here", "3 * here"))
    assert example.main() == 1
    assert "disagree" in capsys.readouterr().err

"""examples/existing_file.py: the kernel of a whole program equals jax.numpy."""

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "existing_file.py"


@pytest.mark.usefixtures("cpu")
def test_a_programs_kernel_equals_jax_numpy(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert "heat_step(const float* u, float* out, Grid grid, float rate)" in shown
    assert "temperature in the middle 7.9786" in shown

"""The command line on a machine with a GPU."""

import jax
import pytest

from jax_graphenc.__main__ import main

pytestmark = pytest.mark.usefixtures("gpu")


def test_the_doctor_runs_a_kernel_on_every_gpu(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    names = [str(device) for device in jax.local_devices(backend="cuda")]
    for name in (*names, "driver", "NVRTC", "custom calls"):
        assert f"\nok    {name} " in printed, printed
    assert f"Kernels run on {', '.join(names)}" in printed


def test_the_benchmark_runs(capsys):
    assert main(["bench", "--kernels", "8", "--rounds", "2"]) == 0
    assert "chain of 8" in capsys.readouterr().out

"""The README's code runs as it stands, and its tables leave nothing out."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jax_graphenc as jge
from jax_graphenc.compiler import fatbin, nvrtc
from jax_graphenc.options import Options

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)

SHOW_SHARDED = """
print("=====", jax.device_count(), "=====", sep="\\n")
print(jax.jit(weigh).lower(split, y).compile().as_text())
"""


def can_export():
    """Whether the compilers for GPUs are here."""
    try:
        nvrtc.version()
        fatbin._load()
    except jge.CompilerNotFoundError:
        return False
    return True


def test_the_readmes_code_runs(tmp_path):
    # None is hidden by its indentation.
    assert len(BLOCKS) == README.count("```python") >= 8
    script = tmp_path / "readme.py"
    exporting = can_export()
    blocks = [block for block in BLOCKS if exporting or "cuda_targets" not in block]
    script.write_text("".join(blocks) + SHOW_SHARDED)
    environment = {
        **os.environ,
        # So that sharding has something to split.
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        # This process may hold most of a GPU's memory.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    command = [sys.executable, "-W", "error::UserWarning", script]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    printed, devices, hlo = run.stdout.split("=====\n")
    lines = printed.splitlines()
    if exporting:
        assert float(lines.pop()) == pytest.approx(1e6)
    total, *_, by_value, batch, relaxed, spec = lines
    assert float(total) == pytest.approx(1e6)
    assert by_value == "[1.5, 3.0, 4.0]"
    assert batch == "[1. 2. 3. 4. 5. 6. 7. 8.]"
    assert float(relaxed) == pytest.approx(2)
    assert "data" in spec
    assert f"f32[{8 // int(devices)},1000]" in hlo
    assert "all-gather" not in hlo


def test_the_readme_names_all_that_is_public():
    code = {
        word for span in re.findall(r"`([^`\n]+)`", README) for word in re.findall(r"\w+", span)
    }
    options = {field.name for field in dataclasses.fields(Options)}
    assert {*jge.__all__} - code == set()
    rows = re.findall(r"^\| (`.*?) \| `JAX_GRAPHENC_", README, re.MULTILINE)
    assert set(re.findall(r"\w+", " ".join(rows))) == options

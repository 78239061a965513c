"""The README's code runs as it stands."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_readmes_code_runs(capsys):
    assert len(BLOCKS) >= 3
    namespace = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), namespace)
    printed = capsys.readouterr().out.splitlines()
    assert float(printed[0]) == pytest.approx(1e6)
    assert float(printed[-1]) == pytest.approx(2)

"""Thirty public .cu files as they are, where JGE_PUBLIC_SOURCES names a folder that has them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = os.environ.get("JGE_PUBLIC_SOURCES")
TRY = Path(__file__).parents[1] / "public_sources"


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER, reason="JGE_PUBLIC_SOURCES names no folder")
def test_public_files_are_taken_as_they_are(tmp_path):
    out = tmp_path / "table.json"
    done = subprocess.run(
        [sys.executable, TRY, FOLDER, "--out", out], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())
    assert len(rows) == 30
    good = [row for row in rows if row["parsed"] == row["sm_90a"] == "yes" and row["ran"] != "no"]
    assert len(good) >= 27, done.stdout

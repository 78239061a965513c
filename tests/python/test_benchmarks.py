"""benchmarks/run.py --quick: every part runs, here too; what it leaves can be drawn and judged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib", reason="needs the demo extra")

ROOT = Path(__file__).parents[2]
PARTS = (
    *("chain", "concurrency", "loops", "tuned_xla", "first_call", "lone_kernel", "threshold"),
    "two_devices",
)


def run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, words)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of one quick run of all parts, on two devices of the CPU."""
    path = tmp_path_factory.mktemp("benchmarks") / "quick.json"
    flags = "--xla_force_host_platform_device_count=2"
    done = run(
        ROOT / "benchmarks/run.py", "--quick", "--out", path, JAX_PLATFORMS="cpu", XLA_FLAGS=flags
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing above is a measurement" in done.stdout
    return path


@pytest.fixture(scope="module")
def found(result: Path) -> dict[str, Any]:
    return json.loads(result.read_text())


@pytest.mark.slow
def test_every_part_measures_ours(found):
    assert not found["failed"]
    assert not found["left out"]
    assert found["quick"]
    measured = {row["part"] for row in found["rows"] if row["way"] in ("jge.graph", "cuda_kernel")}
    # The rows of a tuned XLA are those of the parts that it measures.
    assert measured | {"threshold", "two_devices", "tuned_xla"} == set(PARTS)
    assert {row["part"] for row in found["rows"]} == set(PARTS) - {"tuned_xla"}
    for row in found["rows"]:
        if "median" in row:
            assert row["min"] <= row["quartile_1"] <= row["median"] <= row["quartile_3"]


@pytest.mark.slow
def test_a_tuned_xla_is_the_best_of_its_flags(found):
    rows = [row for row in found["rows"] if "flags" in row and row["kind"] == "queued"]
    assert "jge.graph beside it" in {row["way"] for row in rows}
    rows = [row for row in rows if not row["way"].startswith("jge.graph")]
    tuned = [row for row in rows if row["way"] == "XLA, tuned"]
    assert {row["work"] for row in tuned} == {"chain", "independent", "vmap", "loop"}
    what = ("work", "kernels", "addresses", "iterations", "kernels per iteration")
    for best in tuned:
        others = [
            row
            for row in rows
            if row["way"] != "XLA, tuned" and all(row.get(k) == best.get(k) for k in what)
        ]
        assert len(others) == 6
        fastest = min(others, key=lambda row: row["median"])
        assert (best["median"], best["flags"]) == (fastest["median"], fastest["flags"])


@pytest.mark.slow
def test_peers_that_need_a_gpu_say_why_they_are_absent(found):
    assert found["absent"]["FFI call"] == "needs a GPU"
    assert found["absent"]["raw graph"] == "needs a GPU"


def test_a_part_that_is_not_there_is_refused():
    done = run(ROOT / "benchmarks/run.py", "--quick", "chains", JAX_PLATFORMS="cpu")
    assert done.returncode == 2
    assert "no part is called 'chains'; there are chain, " in done.stderr


def draw(out: Path, *words: str | Path, **variables: str) -> dict[str, bytes]:
    """The drawings of a result by name, all of them well-formed."""
    done = run(ROOT / "tools/plot_results.py", *words, "--out", out, **variables)
    assert done.returncode == 0, done.stderr
    for path in out.glob("*"):
        ElementTree.parse(path)
    return {path.name: path.read_bytes() for path in out.glob("*")}


@pytest.mark.slow
def test_a_result_is_drawn_the_same_each_time_also_as_gathered(result, tmp_path):
    names = ("overview", "chain", "concurrency", "loops", "host_time", "first_call")
    drawn = draw(tmp_path / "a", result, PYTHONHASHSEED="1")
    assert sorted(drawn) == sorted(f"{name}.svg" for name in names)

    # As tools/gpu.sh leaves it.
    work = tmp_path / "work"
    work.mkdir()
    (work / "benchmarks.json").write_bytes(result.read_bytes())
    (work / "benchmarks.status").write_text("pass\n")
    (work / "benchmarks.txt").write_text("")
    gathered = tmp_path / "results.json"
    assert run(ROOT / "tools/collect_results.py", work, gathered).returncode == 0
    assert draw(tmp_path / "b", gathered, PYTHONHASHSEED="2") == drawn


def test_the_images_in_the_documents_are_those_of_the_newest_result(tmp_path):
    committed = {path.name: path.read_bytes() for path in (ROOT / "docs/images").glob("*.svg")}
    drawn = draw(tmp_path)
    (date_and_commit,) = {
        found
        for drawing in drawn.values()
        for found in re.findall(rb"\d{4}-\d\d-\d\d, commit \w+", drawing)
    }
    for name in drawn:
        assert date_and_commit in committed[name], f"{name}: run tools/plot_results.py"
    shown = re.findall(r"docs/images/(\w+\.svg)", (ROOT / "README.md").read_text())
    assert "overview.svg" in shown
    assert set(shown) <= committed.keys()

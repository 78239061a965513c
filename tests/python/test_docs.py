"""The pages: their code runs, what they show is what it prints, and they leave nothing out."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import page_runner
import pytest

import jax_graphenc as jge
from jax_graphenc import primitives
from jax_graphenc.base.options import Options

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
TEXTS = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
MADE = "docs/errors.md"  # by tools/error_table.py, with a test of its own
RUN = [name for name, text in TEXTS.items() if name != MADE and "```python\n" in text]

WRONG = """\
```python
print(1 + 1)  # 3
print("a", "b")  # a ...
```
```python
print(5)
```
```output
6
```
```python notest
raise RuntimeError("not ours")
```
```python
x = 1
raise ValueError("here")
```
"""

APART = """\
<!-- each block runs by itself -->
```python
x = 1
```
```python
print(x)
```
"""


@pytest.fixture(scope="module")
def what_is_wrong(tmp_path_factory):
    """What the runner says of each page. One process for all, since JAX takes seconds to start."""
    folder = tmp_path_factory.mktemp("pages")
    made = {"wrong.md": WRONG, "apart.md": APART}
    for name, text in made.items():
        (folder / name).write_text(text)
    pages = [*(folder / name for name in made), *(ROOT / name for name in RUN)]
    environment = {
        **os.environ,
        # So that sharding has something to split.
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        # This process may hold most of a GPU's memory.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    runner, report = Path(page_runner.__file__), folder / "report.json"
    done = subprocess.run(
        [sys.executable, runner, report, *pages], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = json.loads(report.read_text())
    return {**wrong, **{name: wrong[str(folder / name)] for name in made}}


@pytest.mark.parametrize("name", RUN)
def test_a_pages_code_runs_and_prints_what_is_shown(what_is_wrong, name):
    # None is hidden by its indentation.
    kinds = [kind for kind, _, _ in page_runner.blocks(TEXTS[name])]
    assert kinds.count("python") == len(re.findall(r"^ *(?:>|-)? *```python$", TEXTS[name], re.M))
    wrong = what_is_wrong[str(ROOT / name)]
    assert not wrong, "\n".join(wrong)


def test_the_runner_sees_what_is_wrong(what_is_wrong):
    first, second, error = what_is_wrong["wrong.md"]
    assert "wrong.md:2: shown is\n3\nprinted was\n2" in first
    assert "wrong.md:8: shown is\n6\nprinted was\n5" in second
    assert 'wrong.md", line 16' in error
    assert "ValueError: here" in error
    (error,) = what_is_wrong["apart.md"]
    assert 'apart.md", line 6' in error
    assert "name 'x' is not defined" in error


# ---- What the pages name -------------------------------------------------------------------------


def names_in_code(text):
    return {word for span in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", span)}


def test_the_reference_lists_all_that_is_public():
    assert {*jge.__all__} - names_in_code(TEXTS["docs/reference/index.md"]) == set()


def test_each_block_of_the_readme_runs_by_itself():
    assert page_runner.APART in TEXTS["README.md"]


def test_the_reference_describes_all_that_is_public():
    pages = "".join(text for name, text in TEXTS.items() if name.startswith("docs/reference/"))
    described = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)", pages, re.MULTILINE))
    public = {name for name in jge.__all__ if name != "testing"}
    assert public - described == set()
    assert {"jax_graphenc.testing", "jax_graphenc.primitives"} <= described
    assert set(primitives.__all__) <= names_in_code(primitives.__doc__ + pages)


@pytest.mark.parametrize("name", [name for name in TEXTS if name != MADE])
def test_what_a_page_names_is_there(name):
    text = TEXTS[name]
    for attribute in re.findall(r"\bjge\.(\w+)", text):
        assert hasattr(jge, attribute), f"jge.{attribute}"
    options = {field.name.upper() for field in dataclasses.fields(Options)}
    assert set(re.findall(r"JAX_GRAPHENC_([A-Z_]+\b)", text)) <= {*options, "CXX"}
    makefile = (ROOT / "Makefile").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    for kind, _, block in page_runner.blocks(text):
        if kind == "sh":
            for target in re.findall(r"^(?:\w+=\S+ )*make (\w+)", block, re.MULTILINE):
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
            for extra in re.findall(r"pip install '\.\[(\w+)\]'", block):
                assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
    paths = re.findall(r"`((?:examples|benchmarks|docs|tests|tools|plugin)/[\w./]+\.\w+)`", text)
    links = re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text)
    folder = (ROOT / name).parent
    for path in [*(ROOT / p for p in paths), *(folder / link for link in links)]:
        assert path.exists(), path


# ---- What is made --------------------------------------------------------------------------------


def test_the_diagrams_are_what_their_source_draws():
    code = "import json, draw; print(json.dumps(draw.draw()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=DOCS / "images", capture_output=True, check=True
    )
    drawn = json.loads(done.stdout)
    assert drawn
    for name, svg in drawn.items():
        assert (DOCS / "images" / name).read_text() == svg, f"run docs/images/draw.py: {name}"

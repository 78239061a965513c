"""The architecture's rules about who may name what."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each folder includes itself and those before it.
ORDER = ["driver", "driver/host", "core", "ffi", "python"]
FILES = sorted((ROOT / "plugin").rglob("*.h")) + sorted((ROOT / "plugin").rglob("*.cc"))


def folder_of(path):
    return str(path.parent.relative_to(ROOT / "plugin"))


def includes(path):
    return re.findall(r'^#include ["<]([^">]+)[">]', path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_includes_only_what_stands_before_it(path):
    place = folder_of(path)
    for name in includes(path):
        folder = name.rpartition("/")[0]
        if folder in ORDER:
            assert ORDER.index(folder) <= ORDER.index(place), f"{path.name} includes {name}"
        if folder == "driver/host":  # whose door is driver/host_driver.h
            assert place == "driver/host", f"{path.name} includes {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_foreign_worlds_are_named_in_one_place(path):
    named = includes(path)
    if path.parent.name != "ffi":
        assert not [name for name in named if name.startswith("xla/")]
    if path.parent.name != "python":
        assert not [name for name in named if name.startswith("nanobind/")]
    assert "cuda_runtime.h" not in " ".join(named)
    # The table is the only way to the driver.
    if not folder_of(path).startswith("driver"):
        calls = re.findall(r"(?<![\w.>:&])cu[A-Z]\w+\s*\(", path.read_text())
        assert not calls, calls


PYTHON = sorted((ROOT / "jax_graphenc").rglob("*.py"))


def python_order():
    """Modules and folders, in the order that the architecture's page names them in."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    paragraph = page[page.index("In Python, in order of dependence") :].partition("\n\n")[0]
    return re.findall(r"`(\w+)`", paragraph)


def place(path):
    return path.relative_to(ROOT / "jax_graphenc").parts[0].removesuffix(".py")


def imported(node):
    """What of the package the code below a node imports when it runs."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module == "jax_graphenc":
        names = [f"jax_graphenc.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module]
    else:
        names = []
    for name in names:
        if name.partition(".")[0] == "jax_graphenc":
            yield name.split(".")[1] if "." in name else "__init__"
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def test_python_modules_import_only_what_stands_before_them():
    if not PYTHON:
        pytest.skip("the package's source is elsewhere")
    order = python_order()
    assert {place(path) for path in PYTHON} == {*order}
    assert len(order) == len({*order})
    for path in PYTHON:
        for name in imported(ast.parse(path.read_text())):
            if name != "_core":
                assert order.index(name) <= order.index(place(path)), f"{path} imports {name}"


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_uses_jaxs_public_names(path):
    # What has no public name is reached in one file, each with its reason.
    if path.name != "jax_compat.py":
        assert not re.search(r"\bjax\._src\b", path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_open_with_their_purpose(path):
    assert path.read_text().startswith(f"// {path.relative_to(ROOT)}: ")

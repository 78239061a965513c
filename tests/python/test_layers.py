"""What the package's modules may import and name."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "jax_graphenc"
PYTHON = sorted(PACKAGE.rglob("*.py"))


def wings():
    """Folders and modules at the top of the package, in the order of the architecture's page."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page[page.index("| wing | what it is |") :].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def module_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts if parts[-1] != "__init__" else parts[:-1])


MODULES = {module_of(path): path for path in PYTHON}


def wing_of(module):
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def imported(path):
    """The package's modules that a file imports, also for its annotations, and the names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [
                (name, None) if name in MODULES else (node.module, alias.name)
                for name, alias in zip(submodules, node.names, strict=True)
            ]
        else:
            continue
        yield from (
            (module, name)
            for module, name in found
            if module in MODULES and (module, name) != ("jax_graphenc", "_core")
        )


def test_every_wing_has_its_place():
    if not PYTHON:
        pytest.skip("the package's source is elsewhere")
    order = wings()
    assert {wing_of(module) for module in MODULES} == {*order}
    assert len(order) == len({*order})


@pytest.mark.parametrize("module", MODULES)
def test_a_wing_imports_only_what_stands_before_it(module):
    order = wings()
    for name, _ in imported(MODULES[module]):
        assert order.index(wing_of(name)) <= order.index(wing_of(module)), f"{module}: {name}"


def test_no_modules_import_each_other():
    graph = {module: {m for m, _ in imported(path)} - {module} for module, path in MODULES.items()}
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which shows the circle


@pytest.mark.parametrize("module", MODULES)
def test_names_are_imported_from_the_file_that_defines_them(module):
    if module in DOORS:
        return
    for source, name in imported(MODULES[module]):
        if name is None or source == "jax_graphenc":
            continue
        defined = {
            target
            for node in ast.parse(MODULES[source].read_text()).body
            for target in defined_by(node)
        }
        assert name in defined, f"{module} imports {name} from {source}, which defines no such name"


# What is only a list of names.
DOORS = {"jax_graphenc", "jax_graphenc.primitives"}


def defined_by(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [
            n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)
        ]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id]
    return []


@pytest.mark.parametrize("path", PYTHON, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_uses_jaxs_public_names(path):
    # What has no public name is reached in one file, each with its reason.
    if path.name != "jax_compat.py":
        assert not re.search(r"\bjax\._src\b", path.read_text())


@pytest.mark.parametrize("wing", sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py")))
def test_a_wings_readme_names_its_files(wing):
    folder = PACKAGE / wing
    named = set(re.findall(r"`(\w+\.py)`", (folder / "README.md").read_text()))
    assert named == {path.name for path in folder.glob("*.py")} - {"__init__.py"}

"""What the plugin's files may include and name, by room."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugin"
# A room includes only itself and those before it.
ORDER = [
    "driver",
    "driver/host",
    "core/base",
    "core/nodes",
    "core/program",
    "core/graphs",
    "core/sinks",
    "core/device",
    "core/run",
    "ffi",
    "python",
]
FILES = sorted(PLUGIN.rglob("*.h")) + sorted(PLUGIN.rglob("*.cc"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PLUGIN)))


def includes(path):
    return re.findall(r'^#include ["<]([^">]+)[">]', path.read_text(), re.MULTILINE)


def room(name):
    """The room of a file of the plugin, and of its folders; None for other files."""
    rooms = [room for room in ORDER if name.startswith(f"{room}/")]
    return rooms[-1] if rooms else None


@each_file
def test_a_room_includes_only_what_stands_before_it(path):
    here = room(str(path.relative_to(PLUGIN)))
    assert here, "the file stands in no room"
    for name in includes(path):
        if (PLUGIN / name).exists():
            assert ORDER.index(room(name)) <= ORDER.index(here), f"it includes {name}"
            # The software driver's door is driver/host_driver.h.
            assert room(name) != "driver/host" or here == "driver/host", f"it includes {name}"


def test_no_two_subjects_need_each_other():
    """A subject is a header and its source; what one needs, all the way down, never needs it."""
    needs = {}
    for path in [path for path in FILES if path.is_relative_to(PLUGIN / "core")]:
        subject = str(path.relative_to(PLUGIN).with_suffix(""))
        named = {name.removesuffix(".h") for name in includes(path) if name.startswith("core/")}
        needs[subject] = needs.get(subject, set()) | (named - {subject})

    def visit(subject, way):
        assert subject not in way, " -> ".join([*way[way.index(subject) :], subject])
        for needed in sorted(needs.pop(subject, ())):
            visit(needed, [*way, subject])

    for subject in sorted(needs):
        visit(subject, [])


@each_file
def test_foreign_worlds_are_named_in_one_place(path):
    here = room(str(path.relative_to(PLUGIN)))
    named = includes(path)
    if here != "ffi":
        assert not [name for name in named if name.startswith("xla/")]
    if here != "python":
        assert not [name for name in named if name.startswith("nanobind/")]
    assert "cuda_runtime.h" not in " ".join(named)
    # The table is the only way to the driver.
    if not here.startswith("driver"):
        calls = re.findall(r"(?<![\w.>:&])cu[A-Z]\w+\s*\(", path.read_text())
        assert not calls, calls


@each_file
def test_files_open_with_their_purpose(path):
    assert path.read_text().startswith(f"// {path.relative_to(ROOT)}: ")

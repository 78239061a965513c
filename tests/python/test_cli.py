"""The command line as users call it: its output and exit status."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import jax
import pytest

import jax_graphenc as jge
from jax_graphenc.__main__ import COMMANDS, main
from jax_graphenc.base.options import Options

# As after `pip install` on an otherwise empty machine.
BARE = {"PATH": "/nonexistent", "CXX": "", "JAX_GRAPHENC_CXX": "", "CUDA_HOME": "", "CUDA_PATH": ""}


def call(*arguments, **environment):
    """Runs a command, its output not a terminal's."""
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-m", "jax_graphenc", *arguments],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(autouse=True)
def whole_lines(monkeypatch):
    """The environment of the tests may set a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


def on_cpu(*arguments, **environment):
    return call(*arguments, JAX_PLATFORMS="cpu", **environment)


def checks(text):
    """The doctor's lines by check: state, finding and advice."""
    found = {}
    name = ""
    for line in text.partition("\n\n")[0].splitlines():
        assert line == line.rstrip()
        if line.startswith(" "):
            what, _, advice = line.strip().partition(": ")
            assert what == "to do", line
            found[name] = (*found[name][:2], advice)
        else:
            state, name = line[:4].strip(), line[6:18].strip()
            found[name] = (state, line[20:], "")
    return found


def test_info_for_machines_is_complete(tmp_path):
    done = on_cpu(
        "info",
        "--json",
        JAX_GRAPHENC_CACHE_DIR=str(tmp_path),
        JAX_GRAPHENC_GRAPH_AFTER="3",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for package in ("jax", "jaxlib", "jax_graphenc"):
        assert found["versions"][package] == version(package)
    assert {"python", "cuda_driver", "nvrtc", "nvfatbin", "nvcc", "cpu_compiler"} < {
        *found["versions"]
    }
    (device,) = found["devices"]
    assert device["jax_device"] == "cpu:0"
    assert {field.name for field in dataclasses.fields(jge.DeviceInfo)} <= {*device}
    assert device["graph_limits"]["ops_source"] == "table"
    assert found["environment"]["JAX_PLATFORMS"] == "cpu"
    options = found["options"]
    assert {*options} == {field.name for field in dataclasses.fields(Options)}
    assert options["cache_dir"] == {"value": str(tmp_path), "from": "JAX_GRAPHENC_CACHE_DIR"}
    assert options["graph_after"] == {"value": 3, "from": "JAX_GRAPHENC_GRAPH_AFTER"}
    assert options["use_graphs"] == {"value": True, "from": "default"}


def test_info_says_what_was_set_by_a_call(capsys):
    with jge.options(max_batch_nodes=17):
        assert main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  max_batch_nodes       17  (jge.options(...))" in lines
    assert f"  jax                   {jax.__version__}" in lines
    assert str(jge.device_info(jax.devices("cpu")[0])).splitlines()[0] in "\n".join(lines)


def test_doctor_without_a_gpu(tmp_path):
    cache = tmp_path / "cache"
    done = on_cpu("doctor", JAX_GRAPHENC_CACHE_DIR=str(cache), JAX_GRAPHENC_GRAPHAFTER="2")
    assert done.returncode == 0, done.stdout + done.stderr
    found = checks(done.stdout)
    assert {state for state, _, _ in found.values()} <= {"ok", "note"}
    state, what, _ = found["driver"]
    assert state == "note"
    assert "no GPU" in what
    assert found["C++ compiler"][0] == found["custom calls"][0] == found["CPU"][0] == "ok"
    assert f"{cache}: 0.0 MB in 0 files, owner " in found["cache folder"][1]
    assert ", mode 0700, writable" in found["cache folder"][1]
    assert done.stdout.endswith("\nKernels run on the CPU.\n")
    assert found["variables"] == (
        "note",
        "JAX_GRAPHENC_GRAPHAFTER is set, and nothing reads it",
        "perhaps JAX_GRAPHENC_GRAPH_AFTER was meant",
    )


def test_doctor_with_neither_gpu_nor_compiler():
    done = on_cpu("doctor", **BARE)
    assert done.returncode == 1, done.stdout + done.stderr
    found = checks(done.stdout)
    state, what, advice = found["C++ compiler"]
    assert state == "fail"
    assert "no C++ compiler was found" in what
    assert "apt install g++" in advice
    assert found["CPU"][0] == "fail"
    assert "Kernels do not run here. 2 checks failed" in done.stdout
    named = on_cpu("doctor", **{**BARE, "CXX": "/nowhere/g++"})
    assert named.returncode == 1
    assert "$CXX, '/nowhere/g++', was not found" in checks(named.stdout)["C++ compiler"][1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_doctor_with_the_cache_of_another_user(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    os.chown(cache, 4321, -1)
    done = on_cpu("doctor", JAX_GRAPHENC_CACHE_DIR=str(cache))
    # Kernels run; they are only compiled again and again.
    assert done.returncode == 0, done.stdout + done.stderr
    state, what, advice = checks(done.stdout)["cache folder"]
    assert state == "fail"
    assert f"{cache} belongs to user 4321, not to user {os.geteuid()}" in what
    assert "JAX_GRAPHENC_CACHE_DIR" in advice
    assert f"rm -r {cache}" in advice
    assert "Kernels run on the CPU. 1 check failed" in done.stdout


def test_doctor_where_jax_has_no_backend():
    if not jge._core.why_no_cuda():
        pytest.skip("JAX may have a GPU here")
    done = call("doctor", JAX_PLATFORMS="cuda")
    assert done.returncode == 1
    assert checks(done.stdout)["JAX"][0] == "fail"
    assert "unset JAX_PLATFORMS, which is 'cuda'" in checks(done.stdout)["JAX"][2]
    assert "Traceback" not in done.stderr


def test_wrong_settings_are_said_plainly():
    done = on_cpu("info", JAX_GRAPHENC_DEBUG="maybe")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ValueError: environment variable JAX_GRAPHENC_DEBUG='maybe': True or False (1 or 0) is "
        "expected"
    )
    for columns in "0", "12":  # which is no width, or too little of one
        done = on_cpu("doctor", CXX='"g++', JAX_GRAPHENC_CXX="", COLUMNS=columns)
        assert done.returncode == 1
        assert "Kernels do not run here." in done.stdout
        said = re.sub(r"\s+", " ", done.stdout)
        assert "$CXX='\"g++' is no command" in said
        assert "Traceback" not in done.stderr


def test_explain_prints_whole_lines_in_any_encoding(tmp_path, capsys):
    (tmp_path / "user.py").write_text(
        "import jax\n"
        "def é(x): return x\n"
        "def long(x): return x\n"
        "long.__name__ = 'a ' * 100\n"
        "number = 3\n"
        "def example_arguments(): return jax.ShapeDtypeStruct((8,), 'float32')\n"
    )
    file = f"{tmp_path}/user.py"
    done = on_cpu("explain", f"{file}:é", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("\\xe9, compiled for cpu: 0 programs")
    assert main(["explain", f"{file}:long"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    for wrong, why in (
        ([f"{file}:number"], "number of "),
        (["..:f"], "a module or a file.py is expected"),
        ([f"{file}:é", "--target", "sm_xx"], "cuda_targets='sm_xx'"),
    ):
        with pytest.raises(SystemExit) as error:
            main(["explain", *wrong])
        assert error.value.code == 2
        assert why in capsys.readouterr().err
    if jge._core.why_no_cuda():
        assert main(["explain", f"{file}:é", "--platform", "cuda"]) == 1
        assert capsys.readouterr().err.startswith("JAX has no GPU here")


def test_a_reader_that_leaves_ends_a_command_quietly(tmp_path):
    (tmp_path / "user.py").write_text("def f(): pass")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "jax_graphenc", "explain", f"{tmp_path}/user.py:f"],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_bench_writes_what_it_prints(tmp_path, capsys):
    path = tmp_path / "result.json"
    assert main(["bench", "--kernels", "3", "--rounds", "2", "--json", str(path)]) == 0
    result = json.loads(path.read_text())
    assert result["device"]["name"] == jge.device_info().name
    assert result["versions"]["jax"] == jax.__version__
    printed = capsys.readouterr().out
    assert [(r["what"], r["kernels"], r["calls"]) for r in result["results"]] == [
        *[("one call", 1, 2)] * 2,
        *[("chain of 3", 3, 2)] * 2,
        *[("loop of 3", 3, 2)] * 2,
    ]
    for row in result["results"]:
        low, high = row["quartiles_us"]
        assert row["least_us"] <= low <= row["median_us"] <= high <= row["most_us"]
        assert f"{row['median_us']:.1f}" in printed


def test_bench_refuses_before_it_measures(tmp_path, capsys):
    for wrong in (["--rounds", "1"], ["--kernels", "many"], ["--json", str(tmp_path / "no" / "a")]):
        with pytest.raises(SystemExit) as error:
            main(["bench", *wrong])
        assert error.value.code == 2
        assert "is expected" in capsys.readouterr().err
    done = on_cpu("bench", **BARE)
    assert done.returncode == 1
    assert "no C++ compiler was found" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


def test_each_module_with_a_parser_is_a_command():
    folder = Path(jge.__file__).parent / "cli"
    names = {path.stem for path in folder.glob("*.py") if "def add_parser" in path.read_text()}
    assert {command.__name__.rpartition(".")[2] for command in COMMANDS} == names


def test_an_unknown_argument_shows_the_usage_of_its_command():
    done = on_cpu("info", "--jsn")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m jax_graphenc info ")
    assert done.stderr.endswith("error: unrecognized arguments: --jsn\n")

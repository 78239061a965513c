"""Builds the sdist, a wheel from it, and tests the wheel as a user installs it.

    python tools/wheel.py                                  what `make wheel` does
    python tools/wheel.py -- tests/python/test_cli.py      other tests

Both end up in dist/ if every check passes. The wheel must contain exactly the package's files, and
an abi3 wheel may call only the stable ABI. auditwheel shows the oldest glibc that it supports.
Then the tool installs it into a new environment and runs the tests in a copy without the package's
source. Needs build, abi3audit and auditwheel, and downloads the package's dependencies.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The files that the tests read, without the package.
TESTED_WITH = (
    *("tests", "examples", "docs", "benchmarks", "plugin", "tools"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"),
)
# Tests that depend on the build and the place of the package, each about a minute.
TESTS = tuple(
    f"tests/python/test_{name}.py"
    for name in ("cli", "process", "kernel", "graph", "cuda_on_cpu", "docs")
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", default=TESTS, help="arguments of pytest")
    tests = parser.parse_args().tests
    with tempfile.TemporaryDirectory(prefix="jax_graphenc_wheel_") as name:
        work = Path(name)
        say("building the sdist, and a wheel from it")
        run(sys.executable, "-m", "build", "--outdir", work / "dist", ROOT)
        (wheel,) = (work / "dist").glob("*.whl")
        check_files(wheel)
        run(sys.executable, "-m", "auditwheel", "show", wheel)
        if "-abi3-" in wheel.name:
            run(sys.executable, "-m", "abi3audit", "--strict", "--verbose", wheel)
        say(f"installing {wheel.name} into a new environment")
        venv.create(work / "venv", with_pip=True)
        python = work / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", f"{wheel}[test]")
        say("testing")
        copy_tests(work / "copy")
        run(python, "-m", "jax_graphenc", "doctor", cwd=work / "copy")
        run(python, "-m", "pytest", "-q", *tests, cwd=work / "copy")
        shutil.copytree(work / "dist", ROOT / "dist", dirs_exist_ok=True)
    say(f"dist/{wheel.name} is in order")


def check_files(wheel: Path) -> None:
    """Compares a wheel's files with the package's files in git."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    listed = run("git", "ls-files", "-z", "jax_graphenc", cwd=ROOT, capture=True)
    expected = {name for name in listed.split("\0") if name}
    expected |= {f"jax_graphenc/_core{extension_suffix(wheel)}"}
    if found != expected:
        sys.exit(
            f"{wheel.name}: missing {sorted(expected - found)}, not expected "
            f"{sorted(found - expected)}"
        )


def extension_suffix(wheel: Path) -> str:
    """The extension's suffix, by the wheel's name."""
    _, _, python, abi, platform = wheel.stem.split("-")
    if abi == "abi3":
        return ".abi3.so"
    machine = platform.partition("_")[2]  # of linux_x86_64
    return f".cpython-{python.removeprefix('cp')}-{machine}-linux-gnu.so"


def copy_tests(folder: Path) -> None:
    folder.mkdir()
    for name in TESTED_WITH:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / name)


def run(*command: str | Path, cwd: Path | None = None, capture: bool = False) -> str:
    """Runs a command; exits if it fails."""
    # PYTHONPATH could make the tests import the source.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        env=environment,
        cwd=cwd,
        check=False,
        text=True,
        stdout=subprocess.PIPE if capture else None,
    )
    if done.returncode != 0:
        say(f"failed with status {done.returncode}: {' '.join(map(str, command))}")
        sys.exit(1)
    return done.stdout or ""


def say(text: str) -> None:
    print(f"=== {text}", flush=True)


if __name__ == "__main__":
    main()

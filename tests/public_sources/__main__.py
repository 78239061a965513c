"""python tests/public_sources FOLDER: takes thirty public .cu files as they are.

For each: whether all its kernels' signatures are read, whether it compiles for sm_90a and for the
CPU, and whether a kernel of it gives numpy's values, where `cases.py` has a call. FOLDER holds the
repositories as `owner+name`; `--fetch` clones what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COLUMNS = ("parsed", "sm_90a", "cpu", "ran")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a part of the path")
    parser.add_argument("--fetch", action="store_true", help="clone what is missing")
    parser.add_argument("--platform", choices=("cpu", "cuda"), default="cpu", help="to run on")
    parser.add_argument("--out", type=Path, help="write the table here as JSON")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(_try(arguments.folder, arguments.one)))
        return 0
    from sources import GLM, SOURCES

    if arguments.fetch:
        for repository, commit in {(s.repository, s.commit) for s in SOURCES} | {GLM}:
            _fetch(arguments.folder, repository, commit)
    rows = []
    for number, source in enumerate(SOURCES):
        if arguments.only not in f"{source.repository}/{source.path}":
            continue
        row = {"file": f"{source.repository}/{source.path}", **_apart(arguments, number)}
        rows.append(row)
        marks = " ".join(f"{row.get(c, 'no')!s:8}" for c in COLUMNS)
        print(f"{row['file'][-62:]:62} {marks} {row.get('why', '')[:160]}", flush=True)
    for column in COLUMNS:
        print(f"{column}: {sum(row.get(column) == 'yes' for row in rows)} of {len(rows)}")
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def _fetch(folder: Path, repository: str, commit: str) -> None:
    to = folder / repository.replace("/", "+")
    if to.is_dir():
        return
    url = f"https://github.com/{repository}"
    subprocess.run(["git", "clone", "--quiet", url, str(to)], check=True)
    subprocess.run(["git", "-C", str(to), "checkout", "--quiet", commit], check=True)


def _apart(arguments: argparse.Namespace, number: int) -> dict[str, Any]:
    """A file in a process of its own, which a crash ends."""
    command = [sys.executable, str(HERE), str(arguments.folder), "--one", str(number)]
    variables = {**os.environ, "JAX_PLATFORMS": arguments.platform, "JAX_ENABLE_X64": "1"}
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return {"why": "it took longer than 300 s"}
    if done.returncode != 0:
        return {
            "why": done.stderr.strip().splitlines()[-1] if done.stderr else str(done.returncode)
        }
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _try(folder: Path, number: int) -> dict[str, str]:
    import cases
    from sources import SOURCES

    import jax_graphenc as jge
    from jax_graphenc.calls.parameters import describe
    from jax_graphenc.compiler.compile import compile_source

    source = SOURCES[number]
    root = folder / source.repository.replace("/", "+")
    module = jge.cuda_module(
        root / source.path,
        defines=dict(source.defines),
        include_dirs=[
            folder / place.replace("/", "+")
            if (folder / place.replace("/", "+")).is_dir()
            else root / place
            for place in source.include_dirs
        ],
    )
    code = module._code.current().source
    kernels = source.kernels or tuple(dict.fromkeys(k.name for k in module.kernels.values()))
    found = {}
    why = []

    def attempt(what: str, f: Any) -> None:
        try:
            result = f()
            found[what] = "-" if result is None else "yes"
        except Exception as error:
            found[what] = "no"
            lines = str(error).splitlines() or [type(error).__name__]
            why.append(f"{what}: {lines[min(1, len(lines) - 1)]}")

    attempt("parsed", lambda: [describe(code, kernel, {}) for kernel in kernels])
    for target in ("sm_90a", "cpu"):
        attempt(target, lambda target=target: compile_source(code, kernels, target, None))
    attempt("ran", lambda: cases.run(source.path, module))
    return {**found, "why": "; ".join(why)}


if __name__ == "__main__":
    sys.exit(main())

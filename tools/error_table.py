"""Keeps docs/errors.md true: runs every bad input on the page and writes its message there.

    python tools/error_table.py            # updates the page
    python tools/error_table.py --check    # only compares; 1 if the page is stale

The page is its own source. A block of Python under a heading of the third level runs after the
page's first block, and its errors and warnings replace those below it; so a new case is a heading
and a block. Comments set more, for one case or, under a heading of the second level, for all of its
cases:

    <!-- environment: NAME=value ... -->  environment variables of a separate process
    <!-- alone -->                        a separate process without the page's first block
    <!-- needs: nvrtc -->                 skipped where that is missing; also: no-gpu

The tool makes the index between `<!-- index -->` and `<!-- end -->` from the messages.
"""

from __future__ import annotations

import argparse
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
FILE = "simulation.py"  # the blocks' file name in messages
HOME = "/home/you"  # replaces the folder that they run in

CASE = re.compile(
    r"^### (?P<title>[^\n]+)\n(?P<comments>(?:\n*<!--[^\n]*-->)*)(?:\n(?!```|#)[^\n]*)*?\n"
    r"```python\n(?P<code>.*?\n)```\n"
    r"(?P<told>(?:\n(?:Raises|Warns with) [^\n]*\n\n```text\n.*?\n```\n)*)",
    re.M | re.S,
)
SECTION = re.compile(
    r"^## (?P<title>[^\n]+)\n(?P<comments>(?:\n*<!--(?! index| end)[^\n]*-->)*)", re.M
)


@dataclass
class Case:
    """A bad input on the page."""

    section: str
    title: str
    code: str
    start: int
    end: int
    alone: bool = False
    needs: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


def read(page: str) -> tuple[str, list[Case]]:
    """The page's first block, and the cases."""
    [prelude] = re.findall(r"```python\n(.*?)```", page[: page.index("\n## ")], re.S)
    cases = []
    sections = list(SECTION.finditer(page))
    ends = [*(section.start() for section in sections[1:]), len(page)]
    for section, until in zip(sections, ends, strict=True):
        for match in CASE.finditer(page, section.end(), until):
            case = Case(
                section["title"], match["title"], match["code"], match.start("told"), match.end()
            )
            for what in re.findall(r"<!-- (.*?) -->", section["comments"] + match["comments"]):
                if what == "alone":
                    case.alone = True
                elif what.startswith("needs: "):
                    case.needs += what.removeprefix("needs: ").split()
                elif what.startswith("environment: "):
                    pairs = what.removeprefix("environment: ").split()
                    case.environment.update(pair.split("=", 1) for pair in pairs)
                else:
                    raise ValueError(f"{case.title}: <!-- {what} --> is not known")
            cases.append(case)
    return prelude, cases


# ---------------------------------------------------------------------- running


def run_all(prelude: str, cases: list[Case]) -> dict[str, list[dict[str, str]] | None]:
    """The errors and warnings of each case; ``None`` for cases that cannot run here."""
    batches: dict[str, list[Case]] = {}
    for i, case in enumerate(cases):
        batches.setdefault(f"{i if case.alone else ''}{case.environment}", []).append(case)
    with ThreadPoolExecutor(max_workers=2) as pool:
        return {
            title: told
            for batch in pool.map(lambda batch: run_batch(prelude, batch), batches.values())
            for title, told in batch.items()
        }


def run_batch(prelude: str, cases: list[Case]) -> dict[str, list[dict[str, str]] | None]:
    """Runs the cases of one process."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))},
            "JAX_PLATFORMS": "cpu",
            "JAX_TRACEBACK_FILTERING": "off",  # filtering would add a note to each error
            "JAX_GRAPHENC_CACHE_DIR": str(home / ".cache"),
            **{k: v.replace(HOME, str(home)) for k, v in cases[0].environment.items()},
        }
        given = {
            "prelude": "" if cases[0].alone else prelude,
            "cases": [{"title": c.title, "code": c.code, "needs": c.needs} for c in cases],
        }
        done = subprocess.run(
            [sys.executable, __file__, "--run", json.dumps(given)],
            env=environment,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{[c.title for c in cases]}:\n{done.stdout}{done.stderr}")
        told: dict[str, list[dict[str, str]] | None] = json.loads(done.stdout.splitlines()[-1])
        for events in told.values():
            for event in events or ():
                event["message"] = normalized(event["message"], str(home))
        return told


def run_here(given: str) -> None:
    """Runs cases in this process, and prints their errors and warnings."""
    task = json.loads(given)
    warnings.simplefilter("ignore")
    base = {"__name__": "__main__"}
    execute(task["prelude"], base, "kernels.py")
    told = {}
    for case in task["cases"]:
        told[case["title"]] = None if missing(case["needs"]) else run_one(case, dict(base))
    print()
    print(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)  # some cases leave work unfinished


def execute(code: str, names: dict[str, object], filename: str) -> None:
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    exec(compile(code, filename, "exec"), names)


def run_one(case: dict[str, str], names: dict[str, object]) -> list[dict[str, str]]:
    events = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            execute(case["code"], names, FILE)
        except Exception as error:
            notes = getattr(error, "__notes__", ())
            events.append(
                {
                    "how": "Raises",
                    "kind": name_of(type(error)),
                    "message": "\n".join([str(error), *notes]),
                }
            )
    warned = [
        {"how": "Warns with", "kind": name_of(w.category), "message": str(w.message)}
        for w in caught
        if w.category.__module__.startswith("jax_graphenc")
    ]
    return warned + events


def name_of(kind: type) -> str:
    """The public name of a class or of its nearest public base."""
    import jax

    ours = sys.modules.get("jax_graphenc")
    for base in kind.__mro__:
        if getattr(jax.errors, base.__name__, None) is base:
            return f"jax.errors.{base.__name__}"
        if ours is not None and base.__name__ in ours.__all__:
            return f"jge.{base.__name__}"
        if base.__module__ == "builtins":
            return base.__name__
    raise AssertionError(kind)


def missing(needs: list[str]) -> bool:
    for what in needs:
        if what == "nvrtc":
            from jax_graphenc.compiler import nvrtc_library

            try:
                nvrtc_library.version()
            except Exception:
                return True
        elif what == "no-gpu":
            from jax_graphenc import _core

            if not _core.why_no_cuda():
                return True
        else:
            raise ValueError(what)
    return False


# Patterns that differ between machines and versions, replaced in this order.
VARIES = (
    (r"\((g\+\+|NVRTC|nvcc)[^\n]*\):$", r"(\1 ...):"),
    (r"\((g\+\+|NVRTC)\S* [^\n]*?: ", r"(\1 ...: "),
    (r"^[^\n]*: In [a-z ]*function [^\n]*\n", ""),
    (r"^[^\n]*: Assembler messages:\n", ""),
    (r"0x[0-9a-f]{6,}", "0x..."),
    (r"graph-\d+-", "graph-1234-"),
    (r"\(\d+ threads\)", "(8 threads)"),
    # JAX's partitioner adds a traceback and the place of the call as text.
    (r"^ *File [^\n]*\n(?: [^\n]*\n)*", ""),
    (r"\n+=== Source Location Trace: ===(?s:.*)", ""),
    (r"\n+Suspected Python Code Location(?s:.*)", ""),
)
COMPILER_ERROR = re.compile(r": (?:fatal )?[Ee]rror: |: error ")


def normalized(message: str, home: str) -> str:
    """A message without parts that differ between machines and versions."""
    message = message.replace(home, HOME)
    for pattern, by in VARIES:
        message = re.sub(pattern, by, message, flags=re.M)
    lines = message.split("\n")
    if "does not compile for" in message:
        # Compilers word errors differently: keep the first error and its line, and what is ours.
        ours = [line for line in lines[1:] if "host function" in line or "host code" in line]
        first = next((i for i, line in enumerate(lines) if COMPILER_ERROR.search(line)), 0)
        excerpt = [line for line in lines[first + 1 : first + 3] if line.startswith(" ")]
        lines = lines[: first + 1] + [re.sub(r"^ *\d* *\|", "    ", line) for line in excerpt]
        lines += ours
    return "\n".join(line.rstrip() for line in lines).strip()


# ---------------------------------------------------------------------- writing


def written(page: str, cases: list[Case], told: dict[str, list[dict[str, str]] | None]) -> str:
    """The page with the cases' errors and warnings."""
    out, at = [], 0
    for case in cases:
        out.append(page[at : case.start])
        events = told[case.title]
        if events is None:
            out.append(page[case.start : case.end])
        else:
            for event in events:
                head = f"\n{event['how']} `{event['kind']}`:\n\n"
                out.append(f"{head}```text\n{event['message']}\n```\n")
        at = case.end
    page = "".join([*out, page[at:]])
    begin, end = page.index("<!-- index -->") + len("<!-- index -->"), page.index("<!-- end -->")
    return f"{page[:begin]}\n{index(page, cases)}{page[end:]}"


# Prefixes of a message: a status, the kernel, a place in its source.
IN_FRONT = re.compile(
    r"[A-Z_]+: (?=jax_graphenc|custom_partitioner)|jax_graphenc: |custom_partitioner: .*:$|"
    r"kernel '[^']*':? |kernel \w+\([^)]*\):? |\"[^\"]*\" in \S+ |"
    r"failed: CUDA_ERROR_LAUNCH_FAILED \(kernel failed\): |"
    r"<[^>]*>(:\d+)?: |\S+\.py(:\d+)?: |\w+: (?=<)"
)
LONGEST = 90  # characters of a message in the index


def index(page: str, cases: list[Case]) -> str:
    """A row per message, by its first words, with links to its cases."""
    found: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        here = page[page.index(f"\n### {case.title}\n") + 3 :]
        here = re.split(r"\n##", here)[0]
        for kind, message in re.findall(
            r"^(?:Raises|Warns with) `(.*?)`:\n\n```text\n(.*?)\n```$", here, re.M | re.S
        ):
            link = f"[{case.title}](#{anchor(case.title)})"
            found.setdefault((first_words(message), kind), []).append(link)
    rows = ["", "| message | raised by |", "|---|---|"]
    for words, kind in sorted(found, key=lambda row: re.sub(r"\W+", " ", row[0]).strip().lower()):
        links = ", ".join(found[words, kind])
        rows.append(f"| `` {words} `` | {links}: `{kind}` |")
    return "\n".join([*rows, "", ""])


def first_words(message: str) -> str:
    """The beginning of a message after its prefixes."""
    lines = iter(message.split("\n"))
    words = ""
    while not words:
        words = next(lines)
        while match := IN_FRONT.match(words):
            words = words[match.end() :]
    if len(words) > LONGEST:
        words = words[:LONGEST].rsplit(" ", 1)[0] + " …"
    return words.replace("|", "\\|")


def anchor(title: str) -> str:
    """The anchor that GitHub and MyST make of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_here(options.run)
    page = PAGE.read_text()
    prelude, cases = read(page)
    assert len({case.title for case in cases}) == len(cases), "each case has a title of its own"
    told = run_all(prelude, cases)
    if good := [title for title, events in told.items() if events == []]:
        sys.exit(f"nothing is wrong with: {'; '.join(good)}")
    new = written(page, cases, told)
    if not options.check:
        PAGE.write_text(new)
    elif new != page:
        import difflib

        sys.stdout.writelines(
            difflib.unified_diff(page.splitlines(True), new.splitlines(True), "committed", "now")
        )
        sys.exit("docs/errors.md is stale: run tools/error_table.py and read what changed")


if __name__ == "__main__":
    main()

"""Collects the results in the working folder of tools/gpu.sh into one JSON file."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def last_matching(text: str, pattern: str) -> str | None:
    """The last line that matches a pattern."""
    return next((x.strip() for x in reversed(text.splitlines()) if re.search(pattern, x)), None)


def main() -> None:
    """Usage: collect_results.py WORKING_FOLDER RESULT_FILE."""
    work, target = map(Path, sys.argv[1:])
    steps = {}
    for status in sorted(work.glob("*.status"), key=lambda path: path.stat().st_mtime):
        text = (work / f"{status.stem}.txt").read_text(errors="replace")
        steps[status.stem] = {
            "status": status.read_text().strip(),
            "summary": last_matching(text, r"\d+ passed|ERROR SUMMARY"),
        }
    demo = work / "demo.txt"
    # The picture's folder depends on the machine.
    shown = demo.read_text().replace(f"{target.parent}/", "") if demo.is_file() else None
    result = {
        "steps": steps,
        "demo": shown.splitlines() if shown else None,
        "benchmarks": {p.stem: json.loads(p.read_text()) for p in sorted(work.glob("*.json"))},
    }
    # One line per row of a table.
    text = re.sub(
        r"\{[^{}\[\]]*\}",
        lambda row: " ".join(row[0].split()),
        json.dumps(result, indent=1),
    )
    target.write_text(text + "\n")


if __name__ == "__main__":
    main()

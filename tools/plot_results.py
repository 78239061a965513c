"""Draws a result of ``benchmarks/run.py`` as SVG files: medians, with bands between the quartiles.

    python tools/plot_results.py [results.json] [--out docs/images]

Without a file it takes the newest of benchmarks/results. The file is the output of ``run.py`` or of
``tools/gpu.sh``. A figure without rows is left out. The same file always gives the same drawing.
Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"

Row = dict[str, Any]

# The measure of all figures but those of host time and of the first call.
MEASURE = "queued"

# The name and the color of each way, dark enough for text on white.
WAYS = {
    "jge.graph": ("jge.graph", "#0072b2"),
    "cuda_kernel": ("cuda_kernel, jax.jit alone", "#8250df"),
    "FFI call": ("FFI call each, XLA as it comes", "#d55e00"),
    "XLA, tuned": ("FFI call each, XLA tuned", "#a02c5a"),
    "FFI call, no trait": ("FFI call each, no graphs", "#9a6700"),
    "Warp": ("Warp, best mode", "#00805a"),
    "raw graph": ("one raw CUDA graph", "#444444"),
    "CuPy graph": ("CuPy graph", "#bf3989"),
}
INK, FAINT = "#24292f", "#8c959f"

STYLE = {
    "svg.hashsalt": "jax_graphenc",  # otherwise the names of elements are random
    "svg.fonttype": "none",  # keep text as text: smaller, searchable and readable aloud
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],  # the first gives the widths
    "font.size": 10,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    # White on dark pages too.
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


# ---------------------------------------------------------------------- what was measured


def newest() -> Path:
    """The result with the latest date that has benchmarks of regions."""
    found = [path for path in sorted(RESULTS.glob("*.json")) if run_of(load(path))]
    if not found:
        raise SystemExit(f"no result in {RESULTS} can be drawn")
    return max(found, key=lambda path: run_of(load(path))["environment"]["date"])


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def run_of(result: dict[str, Any]) -> dict[str, Any] | None:
    """The result with rows and environment, alone or inside a collected one; None without rows."""
    gathered = result.get("benchmarks", {})
    for run in (result, gathered.get("benchmarks", {})):
        if "rows" in run:
            return run
    return None


def select(rows: Sequence[Row], **case: Any) -> list[Row]:
    return [row for row in rows if case.items() <= row.items()]


def by_way(rows: Sequence[Row], x: str) -> dict[str, list[Row]]:
    """The rows of each way, in the order of WAYS; for Warp the fastest mode at each point."""
    lines: dict[str, dict[Any, Row]] = {}
    for row in rows:
        way = row["way"].split(",")[0] if row["way"].startswith("Warp") else row["way"]
        points = lines.setdefault(way, {})
        if row[x] not in points or row["median"] < points[row[x]]["median"]:
            points[row[x]] = row
    return {way: [lines[way][at] for at in sorted(lines[way])] for way in WAYS if way in lines}


# ---------------------------------------------------------------------- drawing


def plain(value: float, _: Any = None) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def logarithmic(axes: Axes, ticks: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(ticks, [plain(tick) for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(LogLocator(subs=()))
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(
        LogLocator(subs=(1,) if high / low > 300 else (1, 3) if high / low > 12 else (1, 2, 5))
    )
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="#d8dee4", linewidth=0.6)
    axes.set_axisbelow(True)


def draw(
    axes: Axes,
    lines: dict[str, list[Row]],
    x: str,
    per: Callable[[Row], float] = lambda row: 1,
    styles: dict[str, tuple[str, str]] | None = None,
) -> None:
    """Lines with bands and, at their ends, their names; each value divided by ``per(row)``."""
    names = WAYS if styles is None else styles
    ends = []
    for way, rows in lines.items():
        name, colour = names[way]
        at = [row[x] for row in rows]
        median, low, high = (
            [row[statistic] / per(row) for row in rows]
            for statistic in ("median", "quartile_1", "quartile_3")
        )
        ours = colour == WAYS["jge.graph"][1]
        axes.fill_between(at, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(
            at,
            median,
            color=colour,
            linewidth=2.4 if ours else 1.4,
            marker="o",
            markersize=4 if ours else 3,
            linestyle="--" if name == WAYS["FFI call, no trait"][0] else "-",
            zorder=3 if ours else 2,
        )
        ends.append((median[-1], at[-1], name, colour))
    logarithmic(axes, sorted({row[x] for rows in lines.values() for row in rows}))
    label_ends(axes, ends)


def label_ends(axes: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Names right of the last points, moved apart where they would overlap."""
    axes.figure.canvas.draw()  # for the final limits
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = sorted(ends)
    points = [to_axes.transform((at, y)) for y, at, _, _ in ends]
    apart = 0.075
    heights = [float(point[1]) for point in points]
    for _ in range(200):  # pushes neighbours apart, a little at a time
        for i in range(len(heights) - 1):
            missing = apart - (heights[i + 1] - heights[i])
            if missing > 0:
                heights[i] -= missing / 2
                heights[i + 1] += missing / 2
        heights = [max(height, 0.02 + i * apart) for i, height in enumerate(heights)]
    for (_, _, name, colour), point, height in zip(ends, points, heights, strict=True):
        axes.annotate(
            name,
            xy=tuple(point),
            xytext=(point[0] + 0.1, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=colour,
            fontsize=9,
            fontweight="bold" if colour == WAYS["jge.graph"][1] else "normal",
            verticalalignment="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.6,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 3,
            },
        )


def panels(title: str, count: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(11, 4.3))
    axes = figure.subplots(1, count, squeeze=False)[0]
    figure.subplots_adjust(left=0.075, right=0.81, top=0.8, bottom=0.2, wspace=0.95)
    figure.text(0.012, 0.93, title, fontsize=13, fontweight="bold")
    return figure, list(axes)


def chain(rows: Sequence[Row]) -> Figure | None:
    figure, axes = panels("A chain of small kernels: time per kernel, calls in a row", 2)
    for addresses, each in zip(("repeat", "move"), axes, strict=True):
        found = select(rows, work="chain", addresses=addresses, kind=MEASURE)
        if len({row["kernels"] for row in found}) < 2:
            return None
        draw(each, by_way(found, "kernels"), "kernels", lambda row: row["kernels"])
        each.set_title(f"addresses {addresses} from call to call")
        each.set_xlabel("kernels in a call")
    axes[0].set_ylabel("µs per kernel")
    return figure


def concurrency(rows: Sequence[Row]) -> Figure | None:
    title = "Independent kernels of one block, 17 µs each: time per call, calls in a row"
    figure, (axes,) = panels(title, 1)
    figure.subplots_adjust(right=0.74)
    found = select(rows, work="independent", kind=MEASURE)
    if len({row["kernels"] for row in found}) < 2:
        return None
    draw(axes, by_way(found, "kernels"), "kernels")
    axes.set_xlabel("kernels in a call")
    axes.set_ylabel("µs per call")
    return figure


def loops(rows: Sequence[Row]) -> Figure | None:
    found = select(rows, work="loop", kind=MEASURE)
    if not found:
        return None
    times = most_bodies(found)
    figure, axes = panels("Counted loops: time per kernel, calls in a row", 2)
    shapes = (
        (f"{times} iterations", {"iterations": times}, "kernels per iteration"),
        ("1 kernel per iteration", {"kernels per iteration": 1}, "iterations"),
    )
    for (title, case, x), each in zip(shapes, axes, strict=True):
        lines = by_way(select(found, **case), x)
        if len({row[x] for line in lines.values() for row in line}) < 2:
            return None
        draw(each, lines, x, lambda row: row["iterations"] * row["kernels per iteration"])
        each.set_title(title)
        each.set_xlabel(x)
    axes[0].set_ylabel("µs per kernel")
    return figure


def host_time(rows: Sequence[Row]) -> Figure | None:
    figure, axes = panels("Host time of a call: a chain of small kernels", 2)
    for addresses, each in zip(("repeat", "move"), axes, strict=True):
        found = select(rows, work="chain", addresses=addresses, kind="host")
        if len({row["kernels"] for row in found}) < 2:
            return None
        draw(each, by_way(found, "kernels"), "kernels")
        each.set_title(f"addresses {addresses} from call to call")
        each.set_xlabel("kernels in a call")
    axes[0].set_ylabel("µs of host time per call")
    return figure


def first_call(rows: Sequence[Row]) -> Figure | None:
    found = select(rows, work="first call", kind="first result")
    found = [row for row in found if row["kernels"] <= 1000]  # 10,000 are of jge.graph alone
    here = by_way(select(found, process="this"), "kernels")
    others = {name: select(found, process=name) for name in ("first", "second")}
    if not here:
        return None
    figure, axes = panels(
        "The first call: from tracing to the first result", 1 + any(others.values())
    )
    draw(axes[0], here, "kernels")
    axes[0].set_title("in a process that runs already")
    axes[0].set_ylabel("seconds")
    axes[0].set_xlabel("kernels in a call")
    if any(others.values()):
        styles = {
            "first": ("jge.graph, caches empty", "#57606a"),
            "second": ("jge.graph, caches filled", WAYS["jge.graph"][1]),
        }
        draw(axes[1], others, "kernels", styles=styles)
        axes[1].set_title("in a new process, each with a kernel of its own")
        axes[1].set_xlabel("kernels in a call")
    return figure


def largest(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """The cases with the most kernels, by their name in the overview."""
    cases: dict[str, dict[str, Any]] = {}
    if independent := select(rows, work="independent"):
        count = max(row["kernels"] for row in independent)
        cases[f"{count} independent kernels"] = {"work": "independent", "kernels": count}
    if loop := select(rows, work="loop"):
        times = most_bodies(loop)
        bodies = [row["kernels per iteration"] for row in select(loop, iterations=times)]
        for body in sorted({min(bodies), max(bodies)}):
            case = {"work": "loop", "iterations": times, "kernels per iteration": body}
            each = f"{body} kernel{'s' * (body > 1)} each"
            cases[f"loop of {times} iterations, {each}"] = case
    for addresses in ("move", "repeat"):
        if chains := select(rows, work="chain", addresses=addresses):
            count = max(row["kernels"] for row in chains)
            case = {"work": "chain", "kernels": count, "addresses": addresses}
            cases[f"chain of {count}, addresses {addresses}"] = case
    return cases


def most_bodies(loop: Sequence[Row]) -> int:
    """The iterations of the loop with the most kernels per iteration."""
    return max(loop, key=lambda row: row["kernels per iteration"])["iterations"]


def overview(rows: Sequence[Row]) -> Figure | None:
    timed = select(rows, kind=MEASURE)
    cases = {name: by_way(select(timed, **case), "work") for name, case in largest(timed).items()}
    if not cases:
        return None
    figure, (axes,) = panels("Small kernels: time per call, calls in a row", 1)
    figure.subplots_adjust(left=0.27, right=0.86, top=0.74)
    for y, ways in enumerate(cases.values()):
        overview_row(axes, -y, ways)
    axes.set_yticks([-y for y in range(len(cases))], list(cases))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("µs of a call (log)")
    axes.set_ylim(-len(cases) + 0.5, 0.5)
    legend(figure, [way for way in WAYS if any(way in ways for ways in cases.values())])
    return figure


def overview_row(axes: Axes, y: float, ways: dict[str, list[Row]]) -> None:
    """The ways of a case on one line, with the ratios of XLA to ours beside it."""
    axes.axhline(y, color="#eaeef2", linewidth=8, zorder=0)
    for way, (row,) in ways.items():
        colour = WAYS[way][1]
        size = 9 if way == "jge.graph" else 6
        axes.plot([row["quartile_1"], row["quartile_3"]], [y, y], color=colour, linewidth=2)
        axes.plot(row["median"], y, "o", color=colour, markersize=size)
    if "FFI call" in ways and "jge.graph" in ways:
        ours = ways["jge.graph"][0]["median"]
        text = f"XLA takes {ways['FFI call'][0]['median'] / ours:.1f}\ntimes as long"
        if "XLA, tuned" in ways:
            text += f", tuned {ways['XLA, tuned'][0]['median'] / ours:.1f}"
        axes.annotate(
            text,
            (1.02, y),
            xycoords=("axes fraction", "data"),
            fontsize=9,
            verticalalignment="center",
        )


def legend(figure: Figure, ways: Sequence[str]) -> None:
    """The names of the ways in a line under the title."""
    left = 0.012
    for way in ways:
        text = figure.text(left, 0.84, f"● {WAYS[way][0]}", color=WAYS[way][1], fontsize=9.5)
        figure.canvas.draw()
        left = text.get_window_extent().x1 / figure.bbox.width + 0.015


FIGURES: dict[str, Callable[[Sequence[Row]], Figure | None]] = {
    "overview": overview,
    "chain": chain,
    "concurrency": concurrency,
    "loops": loops,
    "host_time": host_time,
    "first_call": first_call,
}


def caption(run: dict[str, Any]) -> str:
    """The machine and the versions."""
    has = run["environment"]
    driver = ".".join(map(str, has["driver"] or ()))
    parts = [
        has["device"],
        f"driver for CUDA {driver}" if driver else None,
        has.get("processor"),
        f"jax {has['jax']}",
        f"Warp {has['warp-lang']}" if has.get("warp-lang") else None,
        has["date"].split("T")[0],
        f"commit {has['commit'][:7]}" if has.get("commit") else None,
    ]
    rounds = max((row["n"] for row in run["rows"] if "n" in row), default=0)
    drawn = f"Medians of up to {rounds} rounds, with quartiles."
    if run.get("quick"):
        drawn = "NOT A MEASUREMENT: tiny sizes, to see that it runs."
    return f"{drawn}  {', '.join(part for part in parts if part)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path, nargs="?", help="default: the newest one committed")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    path = options.result or newest()
    run = run_of(load(path))
    if run is None:
        parser.error(f"{path} has no benchmarks of regions")
    matplotlib.rcParams.update(STYLE)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, make in FIGURES.items():
        figure = make(run["rows"])
        if figure is None:
            print(f"{name}: not in {path.name}")
            continue
        figure.text(0.012, 0.025, caption(run), fontsize=8, color="#57606a")
        target = options.out / f"{name}.svg"
        figure.savefig(target, metadata={"Date": None, "Creator": None})
        print(f"wrote {target}")


if __name__ == "__main__":
    main()

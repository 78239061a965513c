"""Draws the diagrams of these pages: ``python docs/images/draw.py`` writes them beside itself.

A diagram is a list of shapes on a white ground, so that it is legible in light and dark pages.
"""

from __future__ import annotations

import ast
import re
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]

GREEN, BLUE, AMBER, GREY, INK = "#e4f2dc", "#e1ecf7", "#fcf0d4", "#f1f2f3", "#1f2933"
EDGES = {GREEN: "#5d9b45", BLUE: "#5b8db8", AMBER: "#c79a3b", GREY: "#9aa5b1", "white": "#9aa5b1"}
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
SANS = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"


def text(x, y, lines, size=14, anchor="middle", weight="normal", fill=INK):
    """Lines of text; those that begin with a backquote are code."""
    out = []
    for i, line in enumerate(lines.split("\n")):
        code = line.startswith("`")
        family = f' font-family="{MONO}"' if code else ""
        shrunk = size - 1 if code else size
        out.append(
            f'<text x="{x}" y="{y + i * (size + 5)}" font-size="{shrunk}" text-anchor="{anchor}" '
            f'font-weight="{weight}" fill="{fill}" xml:space="preserve"{family}>'
            f"{escape(line.removeprefix('`'))}</text>"
        )
    return "\n".join(out)


def box(x, y, width, height, title, lines="", fill=GREY, size=13):
    """A box with a title and lines below it, all in its middle."""
    count = len(lines.split("\n")) if lines else 0
    tall = 15 * bool(title) + count * (size + 5)
    top = y + (height - tall) / 2 + 11
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" '
        f'stroke="{EDGES[fill]}" stroke-width="1.3"/>'
    ]
    if title:
        parts.append(text(x + width / 2, top + 1, title, 14, weight="600"))
    if lines:
        parts.append(text(x + width / 2, top + 20 * bool(title), lines, size))
    return "\n".join(parts)


def frame(x, y, width, height, title, fill="white"):
    """A box around others, with its title in the corner."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="{fill}" '
        f'stroke="{EDGES[fill]}" stroke-width="1.3" stroke-dasharray="5 4"/>\n'
        + text(x + 12, y + 21, title, 13, "start", "600", "#52606d")
    )


def arrow(*points, label="", at=None):
    """A line through points with a head at its end."""
    path = " ".join(f"{x},{y}" for x, y in points)
    line = (
        f'<polyline points="{path}" fill="none" stroke="#52606d" stroke-width="1.6" '
        'marker-end="url(#head)"/>'
    )
    return f"{line}\n{text(*at, label, 13, fill='#3e4c59')}" if label else line


def drawing(width, height, title, *shapes):
    """The whole file."""
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" \
viewBox="0 0 {width} {height}" role="img" \
font-family="{SANS}">
<title>{escape(title)}</title>
<!-- made by docs/images/draw.py -->
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#52606d"/></marker></defs>
<rect width="{width}" height="{height}" rx="12" fill="white"/>
{chr(10).join(shapes)}
</svg>
"""


def source_to_call():
    """What becomes of a kernel."""
    return drawing(
        900,
        372,
        "CUDA C++ becomes a JAX function, and a custom call in XLA's program",
        box(20, 40, 236, 120, "CUDA C++", "`__global__ void saxpy(\n`  const float* x, ...,\n"
            "`  float* out, float a)", AMBER),
        arrow((256, 100), (338, 100), label="`cuda_kernel", at=(297, 88)),
        box(340, 40, 200, 120, "a JAX function", "`saxpy(x, y, a=2.0)\njit, grad, vmap, shard_map",
            BLUE),
        arrow((540, 100), (598, 100), label="`jax.jit", at=(568, 88)),
        frame(600, 14, 280, 172, "one XLA program"),
        box(618, 46, 226, 32, "", "operations of XLA's own"),
        box(618, 86, 226, 44, "one custom call", "a kernel, or a region of many", GREEN),
        box(618, 138, 226, 32, "", "operations of XLA's own"),
        arrow((844, 108), (862, 108), (862, 241)),
        arrow((618, 108), (582, 108), (582, 204), (232, 204), (232, 241)),
        box(20, 242, 424, 108, "without a GPU",
            "compiled by g++, run on one core\nbarriers, shared memory, warps, atomics\n"
            "debug mode checks every access", GREY),
        box(464, 242, 416, 108, "on a GPU",
            "compiled by NVRTC, launched on XLA's stream\nseveral kernels: one CUDA graph,\n"
            "kept, and patched where addresses moved", GREEN),
    )  # fmt: skip


def region():
    """What jge.graph saves."""
    shapes = [frame(16, 16, 868, 118, "a counted loop under jax.jit: XLA runs it step by step")]
    for i in range(4):
        x = 40 + i * 212
        shapes.append(box(x, 54, 84, 56, "", "XLA's\nloop"))
        shapes.append(box(x + 104, 54, 84, 56, "kernel", "", GREEN))
        shapes.append(arrow((x + 84, 82), (x + 103, 82)))
        if i < 3:
            shapes.append(arrow((x + 188, 82), (x + 211, 82)))
    shapes.append(frame(16, 156, 868, 118, "the same function in jge.graph: one custom call"))
    shapes.append(box(40, 194, 110, 56, "", "one launch\nof a graph", BLUE))
    for i in range(7):
        x = 170 + i * 100
        shapes.append(box(x, 194, 80, 56, "kernel", "", GREEN))
        shapes.append(arrow((x - 20, 222), (x - 1, 222)))
    return drawing(900, 290, "A loop of kernels, with and without jge.graph", *shapes)


def architecture():
    """The layers, and which files they are in."""
    stages = [
        (BLUE, "cuda_kernel(source, name, ...)", "signature: roles from the C++ text\n"
         "call: shapes, launch and values of one call",
         "signature/  (tree-sitter, pcpp), parameters.py\n"
         "define.py, kernel.py, arguments.py, values.py,\nlaunch.py, call.py"),
        (BLUE, "kernel_p: jvp, batching, lowering",
         "compile: cubin (NVRTC) or shared object (g++)\nprogram: bytes",
         "primitives.py, batching.py, lowering.py\ncompiler/, and a cache on disk\nprogram.py"),
        (AMBER, "custom call jax_graphenc.program.v1",
         "instantiate: decode, validate, record edges\n"
         "execute: load once per device, bind addresses",
         "plugin/ffi, plugin/core/program\ncore/run: runtime, program_on_devices"),
    ]  # fmt: skip
    shapes = [
        text(250, 30, "what happens", 13, weight="600", fill="#52606d"),
        text(520, 30, "where", 13, "start", "600", "#52606d"),
        frame(12, 44, 876, 238, "Python: jax_graphenc/"),
        frame(12, 298, 876, 350, "C++: plugin/"),
    ]
    for (fill, title, lines, files), y in zip(stages, (76, 180, 330), strict=True):
        shapes.append(box(30, y, 460, 84, title, lines, fill))
        shapes.append(text(520, y + 26, files, 13, "start", fill="#3e4c59"))
    shapes += [
        arrow((260, 160), (260, 179)),
        arrow((260, 264), (260, 329)),
        text(274, 318, "XLA", 13, "start", "600", "#52606d"),
        arrow((145, 414), (145, 447)),
        arrow((375, 414), (375, 447), label="while XLA captures", at=(446, 437)),
        box(30, 448, 230, 84, "encoder", "one per stream: several nodes\nas an executable graph,\n"
            "one node, or seen first: a launch", GREEN, 12),
        box(275, 448, 215, 84, "capture", "nodes are added\nto the graph of XLA's\ncommand buffer",
            GREEN, 12),
        text(520, 474, "core/run: encoder, batch, program_graph\n"
             "core/graphs: exec, exec_cache\ncore/nodes, core/sinks", 13, "start", fill="#3e4c59"),
        arrow((145, 532), (145, 565)),
        arrow((375, 532), (375, 565)),
        box(30, 566, 460, 66, "the driver's table", "cuda_driver: libcuda, opened at first use\n"
            "host_driver: the same functions in software", GREY),
        text(520, 592, "plugin/driver", 13, "start", fill="#3e4c59"),
    ]  # fmt: skip
    return drawing(900, 660, "The layers of jax_graphenc", *shapes)


def wings_of_the_page():
    """The rows of the architecture page's table: the names in each, and what it is."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page[page.index("| wing | what it is |") :].partition("\n\n")[0]
    for row in table.splitlines()[2:]:
        _, names, what, _ = row.split("|")
        yield re.findall(r"`(\w+)`", names), what.strip().replace("`", "")


def imports_between(rows):
    """Which row imports from which, from the imports in the code."""
    package = ROOT / "jax_graphenc"
    row_of = {name: i for i, (names, _) in enumerate(rows) for name in names}
    found = set()
    for path in package.rglob("*.py"):
        here = row_of[path.relative_to(package).parts[0].removesuffix(".py")]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "jax_graphenc":
                modules = [f"jax_graphenc.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            parts = [module.split(".") for module in modules]
            there = {row_of.get(p[1], here) for p in parts if p[0] == "jax_graphenc" and p[1:]}
            found |= {(here, row) for row in there - {here}}
    return sorted(found)


def wings():
    """The package by wings, with an arc for each import from one to another."""
    rows = list(wings_of_the_page())
    height, left, width = 56, 20, 560
    middle = [44 + i * height + (height - 12) / 2 for i in range(len(rows))]
    shapes = [
        text(left, 28, "each wing imports only from those above it", 13, "start", "600", "#52606d")
    ]
    for (names, what), y in zip(rows, middle, strict=True):
        top = y - (height - 12) / 2
        shapes.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{height - 12}" rx="8" '
            f'fill="{BLUE}" stroke="{EDGES[BLUE]}" stroke-width="1.3"/>'
        )
        shapes.append(text(left + 12, y - 3, "`" + ", ".join(names), 14, "start", "600"))
        shapes.append(text(left + 12, y + 14, what, 12, "start"))
    against = 0
    right = left + width
    for here, there in imports_between(rows):
        wrong = there > here
        against += wrong
        # Arcs end apart, so that their heads can be told from each other.
        y0, y1 = middle[here] - 9 * (not wrong), middle[there] + 9
        bow = right + 26 + 21 * abs(here - there)
        shapes.append(
            f'<path d="M{right},{y0} C{bow},{y0} {bow},{y1} {right + 3},{y1}" fill="none" '
            f'stroke="{"#c0392b" if wrong else "#7b8794"}" stroke-width="{2.5 if wrong else 1.1}" '
            f'marker-end="url(#head)"><title>{escape(", ".join(rows[here][0]))} imports '
            f"{escape(', '.join(rows[there][0]))}</title></path>"
        )
    bottom = 44 + len(rows) * height
    count = f"{len(imports_between(rows))} arrows from wing to wing, {against} against the order"
    shapes.append(text(left, bottom + 16, count, 13, "start", "600", "#52606d"))
    return drawing(900, bottom + 34, "The package by wings", *shapes)


DIAGRAMS = {
    "source_to_call": source_to_call,
    "region": region,
    "architecture": architecture,
    "wings": wings,
}


def draw() -> dict[str, str]:
    """The diagrams, by the names of their files."""
    return {f"{name}.svg": make() for name, make in DIAGRAMS.items()}


if __name__ == "__main__":
    for name, svg in draw().items():
        (Path(__file__).parent / name).write_text(svg)

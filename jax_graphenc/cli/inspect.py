"""``inspect``: the kernels of a .cu file, what has to be said of each, and where it compiles."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from rich.text import Text

from jax_graphenc.base.errors import CompilerNotFoundError, KernelCompileError
from jax_graphenc.base.options import current
from jax_graphenc.cli.bindings import Binding, bindings_of, module_text
from jax_graphenc.cli.console import output, print_row, progress
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.diagnostics import UnknownKernelError
from jax_graphenc.compiler.source import Source
from jax_graphenc.kernels.sources import MODULE, follow

TARGETS = ("cpu", "sm_80", "sm_90a")


def add_parser(subparsers: Any) -> None:
    """Adds the command's parser."""
    parser = subparsers.add_parser(
        "inspect",
        help="the kernels of a .cu file, and a Python module that defines them",
        description="Shows each kernel of a CUDA source: its signature, what has to be said of it, "
        "and where it compiles. Runs nothing and needs no GPU.",
        epilog="example: python -m jax_graphenc inspect solver.cu -I include --write solver.py",
    )
    parser.add_argument("file", type=_source_file, metavar="file.cu")
    parser.add_argument(
        "-I",
        dest="folders",
        action="append",
        default=[],
        metavar="FOLDER",
        help="a folder of headers, as include_dirs",
    )
    parser.add_argument(
        "-D", dest="macros", action="append", default=[], metavar="NAME[=VALUE]", help="a macro"
    )
    parser.add_argument(
        "--write",
        type=_python_file,
        metavar="bindings.py",
        help="write a module with a kernel for each, which runs once the shapes are filled in",
    )
    parser.add_argument(
        "--no-compile", action="store_true", help=f"do not compile for {', '.join(TARGETS)}"
    )
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints the kernels and writes what is asked for; returns the exit status."""
    macros = dict(_macro(text) for text in arguments.macros)
    try:
        files = follow(arguments.file, MODULE, macros, (), arguments.folders, None)
        source = files.current().source
        found = bindings_of(source)
    except (OSError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if not found:
        print(f"{arguments.file} has no __global__ function that can be read", file=sys.stderr)
        return 1
    console = output()
    console.print(Text(f"{arguments.file}: {_count(len(found), 'kernel')}", style="bold"))
    for binding in found:
        console.print()
        console.print(Text(f"{binding.signature}", style="bold").append(_line(binding), "dim"))
        rows = list(binding.roles())
        rows.append(("to be said", ", ".join(binding.to_say())))
        if binding.problem:
            rows.append(("refused", binding.problem))
        rows += [("launched", f"{launch.text} (line {launch.line})") for launch in binding.launches]
        if not arguments.no_compile:
            with progress(f"compiling {binding.name}"):
                rows.append(("compiles for", _compiles(source, binding)))
        for name, value in rows:
            print_row(console, f"  {name}", value, widths=(14,))
    if arguments.write is None:
        return 0
    text = module_text(found, arguments.file, arguments.write, arguments.folders, macros)
    try:
        # Never over a file that may have been filled in.
        with arguments.write.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print(f"{arguments.write}: {error.strerror}; nothing was written", file=sys.stderr)
        return 1
    console.print(f"\nwrote {arguments.write}: fill in each `...`")
    return 0


def _compiles(source: Source, binding: Binding) -> str:
    """For each target whether an example of the kernel compiles there, and if not, why."""
    if binding.example is None:
        return f"not tried: {binding.name} has template arguments that no launch shows"
    told, reasons = [], []
    for target in TARGETS:
        try:
            compile_source(source, [binding.example], target, current().cache_dir)
            told.append(target)
        except (CompilerNotFoundError, KernelCompileError, UnknownKernelError) as error:
            told.append(f"not {target}")
            # The first line names kernel and compiler; what is wrong follows.
            lines = str(error).split("\n")
            reasons.append(f"{target}: {lines[1] if len(lines) > 1 else lines[0]}")
    example = f" (as {binding.example})" if binding.example != binding.name else ""
    return "\n".join([", ".join(told) + example, *dict.fromkeys(reasons)])


def _line(binding: Binding) -> str:
    return f"  line {binding.signature.line}"


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _macro(text: str) -> tuple[str, str | bool]:
    name, equals, value = text.partition("=")
    return name, value if equals else True


def _source_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path


def _python_file(text: str) -> Path:
    if not text.endswith(".py"):
        raise argparse.ArgumentTypeError(f"{text!r}: a name that ends in .py is expected")
    return Path(text)

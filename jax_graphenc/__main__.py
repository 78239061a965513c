"""The command line: ``python -m jax_graphenc``; one module of ``cli`` per command."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

import jax_graphenc
from jax_graphenc.cli import bench, doctor, explain, info, inspect

COMMANDS = (info, doctor, bench, explain, inspect)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m jax_graphenc",
        description="Shows, checks and times jax_graphenc on this machine.",
    )
    parser.add_argument("--version", action="version", version=jax_graphenc.__version__)
    subparsers = parser.add_subparsers(metavar="command")
    for command in COMMANDS:
        command.add_parser(subparsers)
    options, unknown = parser.parse_known_args(arguments)
    if "run" not in options:
        parser.print_help(sys.stderr)
        return 2
    if unknown:
        # parse_args would show the usage of all commands instead of this one's.
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    # Do not fail on a name that the terminal cannot encode.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # JAX would take three quarters of the memory of GPUs that others may use.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # a reader such as head has closed its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())

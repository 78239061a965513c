"""The commands' output: fitted to a terminal, and whole lines elsewhere."""

from __future__ import annotations

import shutil

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

_LEAST_WIDTH = 40


def output() -> Console:
    """The console of a command's results."""
    return Console(highlight=False, markup=False, width=columns())


def columns() -> int:
    """The width in $COLUMNS or of the terminal; without one, enough for any line.

    A file's lines stay whole, for searching. Rich would print nothing with COLUMNS=0, and drop the
    text that does not fit beside the first columns.
    """
    return max(shutil.get_terminal_size((1 << 16, 0)).columns, _LEAST_WIDTH)


def progress(what: str) -> Status:
    """A ``with`` block that shows progress on stderr, if that is a terminal."""
    return Console(stderr=True).status(what)


def print_row(console: Console, *cells: str | Text, widths: tuple[int, ...]) -> None:
    """Prints cells side by side; the last one's lines are aligned.

    Args:
        console: where to.
        *cells: one more than ``widths``.
        widths: columns of each cell but the last.
    """
    *first, last = (cell if isinstance(cell, Text) else Text(cell) for cell in cells)
    # A table per line, because one table would pad all lines to the longest.
    for line in last.split("\n"):
        row = Table.grid(padding=(0, 2))
        for width in widths:
            row.add_column(min_width=width, no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(*first, line)
        console.print(row)
        first = [Text("") for _ in first]

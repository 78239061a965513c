"""How the commands print: fitted to a terminal, and in whole lines where there is none."""

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
    """What $COLUMNS or the terminal has; without one so many that no line is broken.

    Whoever searches a file wants whole lines. Not as rich does it, which prints nothing at all with
    COLUMNS=0, and leaves out what does not fit beside the first columns.
    """
    return max(shutil.get_terminal_size((1 << 16, 0)).columns, _LEAST_WIDTH)


def progress(what: str) -> Status:
    """Shows what is being done, for a ``with``; on a terminal only, and beside the output."""
    return Console(stderr=True).status(what)


def print_row(console: Console, *cells: str | Text, widths: tuple[int, ...]) -> None:
    """Prints cells side by side, the last one with all lines under its first.

    Args:
        console: Where to.
        *cells: One more than ``widths``.
        widths: Columns of each cell but the last.
    """
    *first, last = (cell if isinstance(cell, Text) else Text(cell) for cell in cells)
    # A table of its own for each line: it would fill all lines with spaces to the longest one.
    for line in last.split("\n"):
        row = Table.grid(padding=(0, 2))
        for width in widths:
            row.add_column(min_width=width, no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(*first, line)
        console.print(row)
        first = [Text("") for _ in first]

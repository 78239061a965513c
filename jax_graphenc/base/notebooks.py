"""What IPython and notebooks show: tables as text, and tracebacks that end in a cell."""

from __future__ import annotations

import sys
from typing import Any

from jax_graphenc.base.tracebacks import without_last_hidden


class ShownAsText:
    """A class that IPython shows by its ``str``, a table, instead of a one-line ``repr``."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


class EndsInCell(BaseException):
    """An exception whose traceback ends at the user's line in IPython, too.

    JAX only marks its frames as hidden there, and IPython shows the last frame even so.
    """

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: the lines to print."""
        tb = without_last_hidden(self.__traceback__) or self.__traceback__
        lines: list[str] = _shell().InteractiveTB.structured_traceback(type(self), self, tb)
        return lines


def name_of_file(filename: str) -> str:
    """A file as messages name it: of a notebook's cell ``Cell In[3]``, otherwise its path."""
    shell = _shell()
    cell = shell and shell.compile.format_code_name(filename)
    return " ".join(cell) if cell else filename


def _shell() -> Any:
    """The IPython that runs this code, or ``None``."""
    ipython = sys.modules.get("IPython")
    return ipython and ipython.get_ipython()

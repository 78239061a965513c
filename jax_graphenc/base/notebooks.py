"""``ShownAsText``: what notebooks and IPython show as ``print`` does."""

from __future__ import annotations

from typing import Any


class ShownAsText:
    """A class whose ``str`` is a table, which IPython would show as one long line otherwise."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

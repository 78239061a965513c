"""``Explanation``: a report with its views, text and drawing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax_graphenc.explanation import dot as drawing
from jax_graphenc.explanation import text as terminal
from jax_graphenc.explanation.data import Report

# A larger picture is unreadable in a notebook.
_MOST_BOXES = 400
_TOO_LARGE = f"no picture: more than {_MOST_BOXES} boxes; .save('picture.svg') draws them"


@dataclass(frozen=True, repr=False)
class Explanation(Report):
    """What a function's kernels become: programs, their nodes and edges, and what splits regions.

    ``print`` fits it to the terminal; notebooks show a picture if Graphviz is installed. Repeated
    steps are shown once, with their count, and a long program by its first nodes; ``full=True``
    shows all nodes.

    Attributes:
        function: its name.
        target: the architecture that kernels are compiled for: ``"cpu"``, ``"sm_90a"``.
        programs: the custom calls, in order; one inside a loop counts once.
        scratch_reuse: the value of that option, by which scratch memory was planned.
        references: kernels whose ``reference=`` runs in their place, on the CPU.
    """

    def text(self, *, width: int | None = None, full: bool = False) -> str:
        """The report as text.

        Args:
            width: the most columns of a line; the terminal's by default.
            full: shows every node.
        """
        return terminal.text(self, width, full=full)

    def dot(self, *, full: bool = False) -> str:
        """The report as a drawing in Graphviz's language.

        Args:
            full: draws every node.

        Raises:
            ModuleNotFoundError: without the Python package ``graphviz``.
        """
        return str(drawing.digraph(self, full=full).source)

    def svg(self, *, full: bool = False) -> str:
        """The report as a picture.

        Args:
            full: draws every node.

        Raises:
            FileNotFoundError: if Graphviz's program ``dot`` is not installed.
            ModuleNotFoundError: without the Python package ``graphviz``.
        """
        return drawing.render(drawing.digraph(self, full=full), "svg").decode()

    def save(self, path: str | os.PathLike[str], *, full: bool = False) -> None:
        """Writes the report to a file, in the format of its suffix.

        Args:
            path: ends in ``.txt``, ``.dot`` or ``.gv``, or in a picture format: ``.svg``, ``.pdf``
                or ``.png``.
            full: shows every node.

        Raises:
            ValueError: for another suffix.
            FileNotFoundError: for a picture, if Graphviz's program ``dot`` is not installed.
        """
        path = Path(path)
        suffix = path.suffix.removeprefix(".")
        if suffix == "txt":
            data = (self.text(width=100, full=full) + "\n").encode()
        elif suffix in ("dot", "gv"):
            data = self.dot(full=full).encode()
        elif suffix in drawing.FORMATS:
            data = drawing.render(drawing.digraph(self, full=full), suffix)
        else:
            known = ", ".join(f".{name}" for name in ("txt", "dot", "gv", *drawing.FORMATS))
            raise ValueError(
                f"explain: cannot save {str(path)!r}: a path that ends in one of "
                f"{known} is expected"
            )
        path.write_bytes(data)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """What a notebook shows: a picture, or the text and the reason for no picture."""
        if drawing.boxes(self) > _MOST_BOXES:
            return {"text/plain": f"{self}\n\n{_TOO_LARGE}"}
        try:
            return {"image/svg+xml": self.svg(), "text/plain": str(self)}
        except (FileNotFoundError, ModuleNotFoundError) as error:
            return {"text/plain": f"{self}\n\nno picture: {error}"}

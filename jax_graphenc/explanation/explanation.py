"""``Explanation``: a report with its views, as text and as a drawing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jax_graphenc.explanation import dot as drawing
from jax_graphenc.explanation import text as words
from jax_graphenc.explanation.data import Report

# A larger picture cannot be read in a notebook.
_MOST_BOXES = 400
_TOO_LARGE = f"no picture: more than {_MOST_BOXES} boxes; .save('picture.svg') draws them"


@dataclass(frozen=True, repr=False)
class Explanation(Report):
    """What a function's kernels become: programs, their nodes and edges, and what splits regions.

    ``print`` shows it in as many columns as the terminal has, and notebooks as a picture, where
    Graphviz is installed. Steps that repeat are shown once, with how often they come, and of many
    different nodes the first; ``full=True`` shows all.

    Attributes:
        function: its name.
        target: what kernels are compiled for: ``"cpu"``, ``"sm_90a"``.
        programs: the custom calls, in order. One in a loop is there once.
        scratch_reuse: the option of that name, by which scratch memory was planned.
        references: kernels whose ``reference=`` runs in their place, on the CPU.
    """

    def text(self, *, width: int | None = None, full: bool = False) -> str:
        """The report as text.

        Args:
            width: columns that a line may have; the terminal's by default.
            full: shows each node, however many are alike.
        """
        return words.text(self, width, full=full)

    def dot(self, *, full: bool = False) -> str:
        """The report as a drawing in Graphviz's language.

        Args:
            full: draws each node, however many are alike.

        Raises:
            ModuleNotFoundError: without the Python package ``graphviz``.
        """
        return str(drawing.digraph(self, full=full).source)

    def svg(self, *, full: bool = False) -> str:
        """The report as a picture.

        Args:
            full: draws each node, however many are alike.

        Raises:
            FileNotFoundError: if Graphviz's program ``dot`` is not installed.
            ModuleNotFoundError: without the Python package ``graphviz``.
        """
        return drawing.render(drawing.digraph(self, full=full), "svg").decode()

    def save(self, path: str | os.PathLike[str], *, full: bool = False) -> None:
        """Writes the report to a file, as its suffix says.

        Args:
            path: ends in ``.txt``, ``.dot`` or ``.gv``, or in a format of Graphviz's, such as
                ``.svg``, ``.pdf`` and ``.png``.
            full: shows each node, however many are alike.

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
        """What a notebook shows: a picture, or the text and what the picture lacks."""
        if drawing.boxes(self) > _MOST_BOXES:
            return {"text/plain": f"{self}\n\n{_TOO_LARGE}"}
        try:
            return {"image/svg+xml": self.svg(), "text/plain": str(self)}
        except (FileNotFoundError, ModuleNotFoundError) as error:
            return {"text/plain": f"{self}\n\nno picture: {error}"}

"""``examples-table``: the programs of a folder, and the first line of what each says of itself.

To be used where reStructuredText is read; the argument is a folder, from the repository's root::

    ```{eval-rst}
    .. examples-table:: examples
    ```
"""

from __future__ import annotations

import ast
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
_HEAD = (".. list-table::", "   :widths: 30 70", "   :class: examples", "")


def table(folder: Path) -> list[str]:
    """The rows, as lines of reStructuredText.

    Raises:
        ValueError: if the folder has no programs, or one has no docstring.
    """
    lines = list(_HEAD)
    for program in sorted(folder.glob("[!_]*.py")):
        says = ast.get_docstring(ast.parse(program.read_text()))
        if not says:
            raise ValueError(f"{program} has no docstring")
        lines += [
            f"   * - :download:`{program.name} </../{program.relative_to(ROOT)}>`",
            f"     - {says.splitlines()[0]}",
        ]
    if len(lines) == len(_HEAD):
        raise ValueError(f"there are no programs in {folder}")
    return lines


class ExamplesTable(SphinxDirective):
    """The directive; its argument is the folder."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Makes the table."""
        folder = ROOT / self.arguments[0]
        for file in (folder, *folder.glob("*.py"), __file__):
            self.env.note_dependency(file)
        return self.parse_text_to_nodes("\n".join(table(folder)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive with Sphinx."""
    app.add_directive("examples-table", ExamplesTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

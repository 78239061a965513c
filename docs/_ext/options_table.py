"""``options-table``: the options, made of the fields and docstring of ``Options``.

To be used where reStructuredText is read::

    ```{eval-rst}
    .. options-table::
    ```
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from jax_graphenc.base.options import ENVIRONMENT_PREFIX, Options

_HEAD = (
    ".. list-table::",
    "   :header-rows: 1",
    "   :widths: 38 46 16",
    "   :class: options",
    "",
    "   * - option, variable",
    "     - meaning",
    "     - default",
)
# Defaults that depend on the user, by what is said of them.
_FROM_ELSEWHERE = {"cache_dir": "the user's cache folder"}


def described() -> dict[str, str]:
    """What the docstring says of each option, each on one line."""
    _, _, attributes = inspect.getdoc(Options).partition("Attributes:\n")
    entries = re.split(r"^ {4}(?=\w+: )", attributes, flags=re.MULTILINE)
    found = {}
    for entry in filter(None, map(str.strip, entries)):
        name, _, text = entry.partition(": ")
        found[name] = " ".join(text.split())
    return found


def table() -> list[str]:
    """The rows, as lines of reStructuredText.

    Raises:
        ValueError: if a field has no description, or a description no field.
    """
    meanings = described()
    if sorted(meanings) != sorted(field.name for field in fields(Options)):
        raise ValueError("the docstring of Options and its fields do not name the same options")
    lines = list(_HEAD)
    for field in fields(Options):
        default = _FROM_ELSEWHERE.get(field.name, f"``{field.default!r}``")
        meaning = meanings[field.name]
        lines += [
            f"   * - | ``{field.name}``",
            f"       | ``{ENVIRONMENT_PREFIX}{field.name.upper()}``",
            f"     - {meaning[0].upper()}{meaning[1:]}",
            f"     - {default}",
        ]
    return lines


class OptionsTable(SphinxDirective):
    """The directive; it has no arguments."""

    def run(self) -> list[nodes.Node]:
        """Makes the table."""
        for file in (inspect.getfile(Options), __file__):
            self.env.note_dependency(file)
        return self.parse_text_to_nodes("\n".join(table()))


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive with Sphinx."""
    app.add_directive("options-table", OptionsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

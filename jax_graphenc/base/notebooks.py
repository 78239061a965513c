"""IPython and notebooks: the names of cells, and tracebacks that end in one."""

from __future__ import annotations

import sys
from typing import Any

from jax_graphenc.base.tracebacks import users_frames


def _shell() -> Any:
    """IPython's shell, if this runs in one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def cell_name(filename: str) -> str | None:
    """What IPython calls the cell that it compiled under a file's name: `Cell In[3]`."""
    compiler = getattr(_shell(), "compile", None)
    named = getattr(compiler, "format_code_name", lambda _: None)(filename)
    return " ".join(named) if named else None


def render(error: BaseException) -> list[str]:
    """The lines that IPython shows of an error: of the user's frames alone."""
    lines: list[str] = _shell().InteractiveTB.structured_traceback(
        type(error), error, users_frames(error.__traceback__)
    )
    return lines

"""Debug mode's Python warnings about outputs that are read before they are written."""

from __future__ import annotations

import warnings
from typing import Any

from jax_graphenc import _core
from jax_graphenc.base.errors import UninitializedReadWarning

# Python's record of warnings already shown, so that a loop shows each once.
_registry: dict[Any, Any] = {}

_Dim3 = tuple[int, int, int]


def _warn(
    node: str,
    parameter: str,
    line: str,
    offset: int,
    size: int,
    block: _Dim3,
    thread: _Dim3,
) -> None:
    """Warns at the kernel's line: this thread has no Python frame of the user's."""
    filename, _, text = line.rpartition(":")
    number = int(text) if text.isdecimal() else 0
    places = ["(" + ",".join(map(str, place)) + ")" for place in (block, thread)]
    message = (
        f"{node} reads '{parameter}' before anything has written it: {line}: reads {size} "
        f"bytes at offset {offset} in block {places[0]}, thread {places[1]}. It begins as "
        f'whatever was in memory. If the kernel adds to it, say zero_init=("{parameter}",); if it '
        f'updates an array of the caller\'s, params={{"{parameter}": "inout"}}'
    )
    warnings.warn_explicit(
        message,
        UninitializedReadWarning,
        filename if text.isdecimal() else line,
        number,
        registry=_registry,
    )


_core.set_unset_read_handler(_warn)

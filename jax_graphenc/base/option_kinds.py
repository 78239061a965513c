"""What each option accepts, and how the text of an environment variable becomes a value."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRATCH_REUSE = ("path", "order", "never")
"""The values of ``scratch_reuse``; ``programs/memory_plan.py`` says what each means."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of option.

    Attributes:
        expected: the values it accepts, in words.
        accepts: whether it accepts a value.
        parse: makes a value of an environment variable's text.
        convert: makes the value that is stored of an accepted one.
        optional: whether ``None`` is accepted.
    """

    expected: str
    accepts: Callable[[Any], bool]
    parse: Callable[[str], Any]
    convert: Callable[[Any], Any] = lambda value: value
    optional: bool = False

    def checked(self, name: str, value: Any) -> Any:
        """An option's value as it is stored.

        Raises:
            ValueError: for a value that is not accepted.
        """
        if not self.accepts(value):
            optional = " or None" if self.optional else ""
            raise ValueError(f"option {name}={value!r}: {self.expected}{optional} is expected")
        return self.convert(value)

    def read(self, variable: str, text: str) -> Any:
        """The value in an environment variable's text.

        Raises:
            ValueError: for text that is no accepted value.
        """
        try:
            value = self.parse(text)
        except (ValueError, KeyError):
            value = None
        if value is None or not self.accepts(value):
            raise ValueError(
                f"environment variable {variable}={text!r}: {self.expected} is expected"
            )
        return self.convert(value)


_MOST = 2**31 - 1  # an int of the native part


def _is_integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _boolean(text: str) -> bool:
    known = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    return known[text.lower() or "0"]


def _folder(value: str | os.PathLike[str] | None) -> Path | None:
    return Path(value).expanduser().absolute() if value else None


def _is_folder(value: Any) -> bool:
    if not isinstance(value, str | os.PathLike | None):
        return False
    try:
        _folder(value)
    except RuntimeError:  # ~name of an unknown user
        return False
    return True


_ARCHITECTURE = re.compile(r"(?:sm|compute)_[1-9]\d+[af]?")


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    """The parts of a text with commas, or of a sequence; each once."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _are_targets(value: Any) -> bool:
    if not isinstance(value, str | tuple | list) or not all(isinstance(v, str) for v in value):
        return False
    return all(_ARCHITECTURE.fullmatch(name) for name in _names(value))


_POSITIVE = "a positive integer below 2**31"
_LIMIT = Kind(_POSITIVE, lambda v: v is None or _is_integer(v, 1), int, optional=True)
_SIZE = Kind(_POSITIVE, lambda v: _is_integer(v, 1), int)
_COUNT = Kind("an integer from 0 on, below 2**31", lambda v: _is_integer(v, 0), int)
_SWITCH = Kind("True or False (1 or 0)", lambda v: isinstance(v, bool), _boolean)
_REUSE = Kind(f"one of {', '.join(SCRATCH_REUSE)}", lambda v: v in SCRATCH_REUSE, str)
_TARGETS = Kind("a list of architectures such as sm_90a or compute_80", _are_targets, str, _names)
_FOLDER = Kind("a folder", _is_folder, str, _folder, optional=True)

KINDS = {
    "max_ops_per_graph": _LIMIT,
    "max_mb_per_graph": _LIMIT,
    "use_graphs": _SWITCH,
    "use_command_buffers": _SWITCH,
    "graph_cache_size": _SIZE,
    "graph_after": _COUNT,
    "save_dot": _FOLDER,
    "time_driver_calls": _SWITCH,
    "cache_dir": _FOLDER,
    "max_batch_nodes": _SIZE,
    "max_unrolled_nodes": _SIZE,
    "scratch_reuse": _REUSE,
    "cuda_targets": _TARGETS,
    "debug": _SWITCH,
    "time_kernels": _SWITCH,
}
"""The kind of each option."""

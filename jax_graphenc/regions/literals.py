"""Numbers that are written into a jaxpr, and how atoms are told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend import core

Atom = Any
"""A ``jax.extend.core.Var`` or ``Literal``."""


def is_scalar_literal(atom: Atom) -> bool:
    """Whether an atom is a number that is known when a region is lowered."""
    if not isinstance(atom, core.Literal):
        return False
    aval: Any = atom.aval
    return aval.shape == () and isinstance(aval.dtype, np.dtype)  # a random key is none


def key_of(atom: Atom) -> Any:
    """What tells atoms apart: constants are the same where they are the same object."""
    return id(atom.val) if isinstance(atom, core.Literal) else atom


def number(literal: core.Literal) -> Any:
    """A literal as a numpy scalar of its type."""
    aval: Any = literal.aval
    return np.asarray(literal.val).astype(aval.dtype)[()]


def scalar_literal(value: Any, aval: Any) -> core.Literal:
    """A number as an atom of a given type."""
    return core.Literal(np.asarray(value).astype(aval.dtype)[()], aval)


def pattern_of(value: Any, dtype: np.dtype[Any]) -> bytes | None:
    """The 1, 2 or 4 bytes that memory full of a value repeats; ``None`` if there are no such."""
    data = np.asarray(value).astype(dtype).tobytes()
    for size in (1, 2, 4):
        if len(data) % size == 0 and data == data[:size] * (len(data) // size):
            return data[:size]
    return None

"""Whose lines a user sees: tracebacks end, and warnings point, at the user's own."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jaxlib
from jax.extend import source_info_util

from jax_graphenc.base import jax_compat

_P = ParamSpec("_P")
_T = TypeVar("_T")

# This file stands one folder below the package's own.
PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
"""The package's folder, with a separator at its end: what begins with it is not the user's."""

_HIDDEN = (PACKAGE, contextlib.__file__, functools.__file__)
_NOT_THE_USERS = (*_HIDDEN, *(f"{folder}{os.sep}" for m in (jax, jaxlib) for folder in m.__path__))


# For the lines that operations remember, and for tracebacks.
source_info_util.register_exclusion(PACKAGE)
jax_compat.hide_in_tracebacks(PACKAGE)


def shorten(error: BaseException) -> None:
    """Takes the package's frames out of the traceback, as JAX does with its own, at the same wish.

    To be followed by a plain ``raise``, which adds no frame.
    """
    error.__traceback__ = _without(error.__traceback__, _HIDDEN)


def users_frames(tb: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the package's frames and JAX's, unless all are wished for."""
    return _without(tb, _NOT_THE_USERS)


def _without(tb: types.TracebackType | None, hidden: tuple[str, ...]) -> types.TracebackType | None:
    """A traceback without the frames of some files, unless all are wished for."""
    if jax.config.jax_traceback_filtering == "off":  # type: ignore[attr-defined] # made at import
        return tb
    frames: list[types.TracebackType] = []
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(hidden):
            frames.append(tb)
        tb = tb.tb_next
    kept = None
    for frame in reversed(frames):
        kept = types.TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def ends_at_caller(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorates what users call: the traceback of an error ends at their line."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return call


def warn(message: str, category: type[Warning]) -> None:
    """Warns at the innermost line that is neither the package's nor JAX's.

    For what is found while a call is lowered that is the line that had it lowered, such as the call
    of the function under ``jax.jit``: JAX keeps no way from there to the line of the kernel's call.
    """
    # warnings.warn can skip files by itself from Python 3.12 on.
    frame: types.FrameType | None = sys._getframe(1)
    users = frame
    while users is not None and users.f_code.co_filename.startswith(_NOT_THE_USERS):
        users = users.f_back
    at = users or frame
    assert at is not None
    warnings.warn_explicit(
        message,
        category,
        at.f_code.co_filename,
        at.f_lineno,
        module=at.f_globals.get("__name__", "<unknown>"),
        registry=at.f_globals.setdefault("__warningregistry__", {}),
    )

"""Tracebacks end, and warnings point, at the user's line."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import jax
import jaxlib
from jax.extend import source_info_util

from jax_graphenc.base import jax_compat

_P = ParamSpec("_P")
_T = TypeVar("_T")

# This file lies one folder below the package's own.
PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
"""The package's folder, with a separator at its end."""

_HIDDEN = (PACKAGE, contextlib.__file__, functools.__file__)
_NOT_THE_USERS = (*_HIDDEN, *(f"{folder}{os.sep}" for m in (jax, jaxlib) for folder in m.__path__))


# For the lines that operations remember, and for tracebacks.
source_info_util.register_exclusion(PACKAGE)
jax_compat.hide_in_tracebacks(PACKAGE)


def shorten(error: BaseException) -> None:
    """Removes the package's frames from the traceback, unless JAX is told to keep its own.

    A bare ``raise`` must follow, which adds no frame.
    """
    if jax.config.jax_traceback_filtering == "off":  # type: ignore[attr-defined] # made at import
        return
    frames = [
        tb
        for tb in _frames_of(error.__traceback__)
        if not tb.tb_frame.f_code.co_filename.startswith(_HIDDEN)
    ]
    error.__traceback__ = without_last_hidden(_linked(frames))


def without_last_hidden(tb: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of JAX and the package behind the user's last one."""
    frames = _frames_of(tb)
    while frames and frames[-1].tb_frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frames.pop()
    return _linked(frames)


def _frames_of(tb: types.TracebackType | None) -> list[types.TracebackType]:
    frames = []
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    return frames


def _linked(frames: Sequence[types.TracebackType]) -> types.TracebackType | None:
    linked = None
    for tb in reversed(frames):
        linked = types.TracebackType(linked, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    return linked


def ends_at_caller(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorates a public function: the traceback of its errors ends at the user's line."""

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

    During lowering that is the call of the function under ``jax.jit``, because JAX does not keep
    the line of the kernel's call.
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

"""Whether this thread is in an encoder's capture, where it must wait for no device."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_thread = threading.local()


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Marks this thread as being in a capture."""
    _thread.captures = getattr(_thread, "captures", 0) + 1
    try:
        yield
    finally:
        _thread.captures -= 1


def is_capturing() -> bool:
    """Whether this thread is in a capture."""
    return getattr(_thread, "captures", 0) > 0

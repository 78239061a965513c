"""Whether this thread is in an encoder's capture, where waiting for a device is an error."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_thread = threading.local()


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Marks this thread as capturing."""
    _thread.captures = getattr(_thread, "captures", 0) + 1
    try:
        yield
    finally:
        _thread.captures -= 1


def is_capturing() -> bool:
    """Whether this thread is capturing."""
    return getattr(_thread, "captures", 0) > 0

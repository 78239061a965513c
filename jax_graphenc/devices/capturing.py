"""Whether this thread is in an encoder's capture, where waiting for a device is an error."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _Thread(threading.local):
    def __init__(self) -> None:
        self.captures: list[object] = []


_thread = _Thread()


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """Marks this thread as capturing."""
    # The list and not the thread: the garbage collector may end a capture on another one.
    captures, this = _thread.captures, object()
    captures.append(this)
    try:
        yield
    finally:
        captures.remove(this)


def is_capturing() -> bool:
    """Whether this thread is capturing."""
    return bool(_thread.captures)

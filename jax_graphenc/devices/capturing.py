"""Whether this thread is in an encoder's capture, where it must not wait for any device."""

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
    """Marks this thread as being in a capture."""
    # The list and not the thread: the garbage collector may end a capture on another one.
    captures, this = _thread.captures, object()
    captures.append(this)
    try:
        yield
    finally:
        captures.remove(this)


def is_capturing() -> bool:
    """Whether this thread is in a capture."""
    return bool(_thread.captures)

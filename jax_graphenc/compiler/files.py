"""A source whose files change while the process lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from jax_graphenc.compiler.includes import find_includes, state_now
from jax_graphenc.compiler.source import Source

# What a file is told by; None for one that is not there.
Stamp = tuple[int, int, int, int] | None

# Clocks of file systems tick rarely, so that a change may leave a stamp as it was that is younger.
_TICK_NS = 100_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A source as its files were at one time; the same object until one of them changes."""

    source: Source


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was found when a source was last read.

    Attributes:
        version: The source.
        states: The states of the files that it includes, as in `includes.py`.
        stamps: What these files, and places where there is none, are told by.
        settled: Whether a change would show in the stamps.
        told: How many files compilers had told of.
    """

    version: Version
    states: dict[str, str]
    stamps: dict[str, Stamp]
    settled: bool
    told: int


class FollowedSource:
    """A source that is read anew when its file, or one that it includes, has changed.

    To ask costs one ``stat`` for each file, and for each place where an include was looked for in
    vain. Contents are compared, so that a file that was only touched is the same version. What is
    gone stays as it was read: kernels outlive a temporary folder.

    Args:
        read: Reads the source.
        path: The file that it is read from, if any.

    Raises:
        Exception: What `read` raises.
    """

    def __init__(self, read: Callable[[], Source], path: str | None = None) -> None:
        self.read = read
        self.path = path
        # Replaced as one, so that threads need no lock; two that meet a change both read it.
        self._seen = self._look(None)

    @property
    def has_files(self) -> bool:
        """Whether there is any file that could change."""
        return bool(self._seen.stamps or self._seen.version.source.files)

    def current(self) -> Version:
        """The source as its files are now.

        Raises:
            Exception: What `read` raises of a changed file; it is read again the next time.
        """
        seen = self._seen
        if (
            seen.settled
            and seen.told == len(seen.version.source.files)
            and all(_stamp(path) == stamp for path, stamp in seen.stamps.items())
        ):
            return seen.version
        if self.path is not None and _stamp(self.path) is None:
            return seen.version
        self._seen = seen = self._look(seen)
        return seen.version

    def _look(self, before: _Seen | None) -> _Seen:
        # A stamp is taken before its file is read: should the file change in between, the stamp is
        # old, and the file is read again.
        now = time.time_ns()
        stamps = {} if self.path is None else {self.path: _stamp(self.path)}

        def look_at(path: str) -> None:
            stamps.setdefault(path, _stamp(path))

        source = self.read()
        same = before is not None and source == before.version.source
        if before is not None and same:
            source = before.version.source
        told = dict(source.files)
        states = find_includes(source, look_at)
        for path, state in told.items():
            look_at(path)
            states.setdefault(path, state_now(path, state))
        settled = all(s is None or max(s[:2]) < now - _TICK_NS for s in stamps.values())
        if before is not None and same and states == {**told, **before.states}:
            return _Seen(before.version, states, stamps, settled, len(told))
        return _Seen(Version(source), states, stamps, settled, len(told))


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

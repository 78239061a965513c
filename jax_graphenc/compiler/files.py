"""A source whose files change while the process lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from jax_graphenc.compiler.source import Source, find_includes

# What a file is told by; None for one that is not there.
Stamp = tuple[int, int, int, int] | None

# Clocks of file systems tick rarely, so that a change may leave a stamp as it was that is younger.
_TICK_NS = 100_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Version:
    """A source as its files were at one time; the same object until one of them changes.

    Attributes:
        source: the source.
        included: SHA-256 of the files that it includes, by path.
    """

    source: Source
    included: dict[str, str]


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
        self._known = self._read_files()

    @property
    def has_files(self) -> bool:
        """Whether there is any file that could change."""
        return bool(self._known[1])

    def current(self) -> Version:
        """The source as its files are now.

        Raises:
            Exception: What `read` raises of a changed file; it is read again the next time.
        """
        version, stamps, settled = self._known
        if settled and all(_stamp(path) == stamp for path, stamp in stamps.items()):
            return version
        if self.path is not None and _stamp(self.path) is None:
            return version
        found, stamps, settled = self._read_files()
        if found.source == version.source and found.included == version.included:
            found = version
        self._known = found, stamps, settled
        return found

    def _read_files(self) -> tuple[Version, dict[str, Stamp], bool]:
        """The source; the stamps of its files; whether a change would show in these."""
        # A stamp is taken before its file is read: should the file change in between, the stamp is
        # old, and the file is read again.
        now = time.time_ns()
        stamps = {} if self.path is None else {self.path: _stamp(self.path)}
        source = self.read()
        included = find_includes(source, lambda path: stamps.setdefault(path, _stamp(path)))
        settled = all(s is None or max(s[:2]) < now - _TICK_NS for s in stamps.values())
        return Version(source, included), stamps, settled


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

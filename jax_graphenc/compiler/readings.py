"""Which files texts were compiled with, in memory and on disk, so that they are found again.

A key of a cache has to cover the files that a compiler reads, which are known once it has read
them. So the first key is of the text alone, and leads to the files of each earlier compilation; if
those of one are as they were, they and the text make the key of its image. (ccache calls this its
direct mode.)
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from jax_graphenc.compiler import cache
from jax_graphenc.compiler.includes import still

_MAX_TEXTS = 1024
_MAX_READINGS = 16  # Of one text: versions of its headers, and folders that it stands in.

# A folder that includes are relative to, and the states of the files that were read.
_Reading = tuple[str, dict[str, str]]


class Readings:
    """The files of each compilation by the key of its text, the last one first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, list[_Reading]] = OrderedDict()

    def find(self, text: str, place: str, cache_dir: Path | None) -> dict[str, str] | None:
        """The files that the text was compiled with, if they are as they were then.

        Args:
            text: The key of a text.
            place: The folder that its includes are relative to.
            cache_dir: Folder of the cache on disk; None for no such cache.
        """
        with self._lock:
            known = self._known.get(text, [])
        found = _match(known, place)
        if found is None and cache_dir is not None:
            found = _match(_load(text, cache_dir), place)
            if found is not None:
                self._remember(text, place, found)
        return found

    def add(self, text: str, place: str, files: dict[str, str], cache_dir: Path | None) -> None:
        """Keeps the files of a compilation. A text that reads none needs no entry on disk."""
        self._remember(text, place, files)
        if cache_dir is not None and files:
            readings = _with_first(_load(text, cache_dir), place, files)
            cache.put(cache_dir, _name(text), {"readings": readings}, b"")

    def _remember(self, text: str, place: str, files: dict[str, str]) -> None:
        with self._lock:
            self._known[text] = _with_first(self._known.get(text, []), place, files)
            self._known.move_to_end(text)
            if len(self._known) > _MAX_TEXTS:
                self._known.popitem(last=False)


def _with_first(known: list[_Reading], place: str, files: dict[str, str]) -> list[_Reading]:
    others = [reading for reading in known if reading != (place, files)]
    return [(place, files), *others[: _MAX_READINGS - 1]]


def _match(known: list[_Reading], place: str) -> dict[str, str] | None:
    for where, files in known:
        if (where == place or not files) and still(files):
            return files
    return None


def _load(text: str, cache_dir: Path) -> list[_Reading]:
    entry: Any = cache.get(cache_dir, _name(text))
    return [] if entry is None else [(place, files) for place, files in entry[0]["readings"]]


def _name(text: str) -> str:
    """The name of an entry, which is another than that of an image."""
    return f"{text}-files"

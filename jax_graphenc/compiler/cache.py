"""Compiled images on disk, shared by processes.

One file per key, checked when it is read, replaced as a whole when it is written. Nothing here
raises because of the disk: a cache that cannot be used is one warning and a compilation more.
Depends on the standard library alone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MAX_BYTES = 512 << 20
"""Default bound on the bytes of all entries."""

_MAGIC = b"JGEIMG01"  # With the format's version.
_DIGEST_BYTES = hashlib.sha256().digest_size
_LENGTH_BYTES = 4  # Of the header, little-endian.
_SUFFIX = ".image"
_STALE_S = 3600  # Age of a temporary file whose writer must have died.
# Errors of a folder that other processes change at the same time.
_GONE = (errno.ENOENT, errno.ESTALE)

_warned: set[str] = set()
_warned_lock = threading.Lock()


class CacheUnavailableWarning(UserWarning):
    """The disk cache cannot be used, so kernels are compiled in every process."""


# How to warn. The package sets a function that finds the user's line.
tell: Callable[[str, type[Warning]], None] = warnings.warn


def get(
    folder: Path, key: str, *, max_bytes: int = MAX_BYTES
) -> tuple[dict[str, Any], bytes] | None:
    """Reads an entry and marks it as used.

    Args:
        folder: The cache's folder.
        key: A name for the contents, in hexadecimal.
        max_bytes: Larger files are not read.

    Returns:
        What `put` was given, or None if it is not there, damaged or another user's.
    """
    with _opened(folder, create=False) as directory:
        if directory is None:
            return None
        name = key + _SUFFIX
        try:
            contents = _read_own(name, directory, max_bytes)
        except OSError:
            return None
        entry = None if contents is None else _decode(contents)
        if entry is not None:
            # Least recently used goes first. A read-only folder keeps its order.
            with contextlib.suppress(OSError):
                os.utime(name, dir_fd=directory)
        return entry


def put(
    folder: Path, key: str, header: dict[str, Any], data: bytes, *, max_bytes: int = MAX_BYTES
) -> None:
    """Writes an entry, then removes the least recently used ones over `max_bytes`.

    Args:
        folder: The cache's folder; made if it is not there.
        key: A name for the contents, in hexadecimal.
        header: What belongs to the data, in JSON's types.
        data: The image.
        max_bytes: Bound on the bytes of all entries.
    """
    contents = _encode(header, data)
    if len(contents) > max_bytes:
        return
    with _opened(folder, create=True) as directory:
        if directory is None:
            return
        try:
            _write(key + _SUFFIX, contents, directory)
        except OSError as error:
            _warn(f"{folder} cannot be written ({os.strerror(error.errno or errno.EIO)})")
            return
        _trim(directory, max_bytes)


def clear(folder: Path) -> None:
    """Removes all entries."""
    with _opened(folder, create=False) as directory:
        if directory is not None:
            _trim(directory, 0)


def is_private(folder: Path) -> bool:
    """Makes a folder if it is not there; tells whether only the user can write to it."""
    with _opened(folder, create=True) as directory:
        return directory is not None


def why_not(folder: Path) -> str | None:
    """Makes a folder if it is not there; says why it is not used, or returns None."""
    directory, reason = _open(folder, create=True)
    if directory is not None:
        os.close(directory)
        if not os.access(folder, os.W_OK):
            return f"{folder} cannot be written"
    return reason


def entries(folder: Path) -> tuple[int, int]:
    """Counts the entries of a folder that is used, and their bytes."""
    count = total = 0
    for path in folder.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # Another process may have removed it.
            total += path.stat().st_size
            count += 1
    return count, total


# ---- The folder ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(folder: Path, *, create: bool) -> Iterator[int | None]:
    """Opens the folder, if it is there and can be trusted; warns once if it cannot.

    All files are then reached through the open folder: what was checked is what is used.
    """
    directory, reason = _open(folder, create=create)
    try:
        if reason is not None:
            _warn(reason)
        yield directory
    finally:
        if directory is not None:
            os.close(directory)


def _open(folder: Path, *, create: bool) -> tuple[int | None, str | None]:
    """Opens the folder if only the user can write to it, or says why not.

    Neither, if it is missing and `create` is false: nothing has been written yet.
    """
    directory = None
    try:
        if create:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
        link = os.lstat(folder)
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        reason = _refusal(folder, link, os.fstat(directory))
    except OSError as error:
        reason = f"{folder} cannot be opened ({os.strerror(error.errno or errno.EIO)})"
        if error.errno in (errno.ENOTDIR, errno.EEXIST):
            reason = f"{folder} is no folder, or stands in none: a file is in the way"
        if error.errno == errno.ENOENT and not create:
            reason = None
    if reason is not None and directory is not None:
        os.close(directory)
        directory = None
    return directory, reason


def _refusal(folder: Path, link: os.stat_result, opened: os.stat_result) -> str | None:
    """Says why a folder is not to be trusted, or returns None. Its images are code to be run."""
    user = os.geteuid()
    if link.st_uid != user or opened.st_uid != user:
        owner = link.st_uid if link.st_uid != user else opened.st_uid
        return f"{folder} belongs to user {owner}, not to user {user}, who runs this"
    if opened.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(opened.st_mode)
        return f"{folder} can be written by others (mode {mode:04o}; `chmod 700` it)"
    return None


def _warn(reason: str) -> None:
    """Warns of a reason once per process."""
    with _warned_lock:
        if reason in _warned:
            return
        _warned.add(reason)
    tell(
        f"no cache on disk: {reason}; kernels are compiled in every process. "
        "Set JAX_GRAPHENC_CACHE_DIR to a folder of your own, or to nothing to do without.",
        CacheUnavailableWarning,
    )


# ---- The files -----------------------------------------------------------------------------------


def _encode(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    payload = len(text).to_bytes(_LENGTH_BYTES, "little") + text + data
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def _decode(contents: bytes) -> tuple[dict[str, Any], bytes] | None:
    start = len(_MAGIC) + _DIGEST_BYTES
    payload = contents[start:]
    digest = hashlib.sha256(payload).digest()
    if contents[:start] != _MAGIC + digest or len(payload) < _LENGTH_BYTES:
        return None
    end = _LENGTH_BYTES + int.from_bytes(payload[:_LENGTH_BYTES], "little")
    return json.loads(payload[_LENGTH_BYTES:end]), payload[end:]


def _read_own(name: str, directory: int, max_bytes: int) -> bytes | None:
    """Reads a file, unless it is no regular file or others can write to it."""
    # O_NONBLOCK: a pipe in the file's place would otherwise block for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with open(os.open(name, flags, dir_fd=directory), "rb") as file:
        status = os.fstat(file.fileno())
        own = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not (own and stat.S_ISREG(status.st_mode)) or status.st_size > max_bytes:
            return None
        return file.read()


def _write(name: str, contents: bytes, directory: int) -> None:
    """Writes a file as a whole, or not at all."""
    temporary = f".{secrets.token_hex(16)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        with open(descriptor, "wb") as file:
            file.write(contents)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _trim(directory: int, max_bytes: int) -> None:
    """Removes the least recently used entries over `max_bytes`, and what dead writers left."""
    entries: list[tuple[float, int, str]] = []
    doomed: list[str] = []
    now = time.time()
    with os.scandir(directory) as files:
        for file in files:
            try:
                status = file.stat(follow_symlinks=False)
            except OSError as error:
                if error.errno in _GONE:
                    continue
                raise
            if file.name.endswith(_SUFFIX):
                entries.append((status.st_mtime, status.st_size, file.name))
            elif file.name.endswith(".tmp") and now - status.st_mtime >= _STALE_S:
                doomed.append(file.name)
    total = sum(size for _, size, _ in entries)
    for _, size, name in sorted(entries):
        if total <= max_bytes:
            break
        total -= size
        doomed.append(name)
    for name in doomed:
        # Another process may have been faster.
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=directory)

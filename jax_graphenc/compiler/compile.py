"""Source to image, through a cache in memory and one on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import asdict, replace
from pathlib import Path

from jax_graphenc.base.errors import KernelCompileError
from jax_graphenc.base.tracebacks import warn
from jax_graphenc.compiler import cache, gpu, host
from jax_graphenc.compiler.diagnostics import UnknownKernelError, relocated
from jax_graphenc.compiler.source import Entry, Image, Source, included_files

cache.tell = warn

_MAX_IMAGES = 1024
_MAX_CHANGES = 10
_KEY_VERSION = 4  # Raise it when the same input gives other images for a reason not in the key.

CPU_TARGETS = ("cpu", "cpu-checked")


class _Memory:
    """Images of this process by key, the least recently used one first; some not yet ready."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.images: OrderedDict[str, Future[Image]] = OrderedDict()
        self.counts: Counter[str] = Counter()

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1


_memory = _Memory()


def _forget_after_fork() -> None:
    """The parent's threads, which may hold the lock or owe an image, are not in the child."""
    global _memory
    _memory = _Memory()


os.register_at_fork(after_in_child=_forget_after_fork)


def compile_source(
    source: Source, expressions: Sequence[str], target: str, cache_dir: Path | None
) -> Image:
    """Compiles CUDA C++ to an image, or takes it from a cache.

    Several threads that ask for the same image at once get one compilation.

    Args:
        source: The source.
        expressions: Its kernels: `"saxpy"`, `"scale<float>"`.
        target: `"cpu"`, `"cpu-checked"` (accesses and barriers are checked), or an architecture
            such as `"sm_90a"` or `"compute_90"`.
        cache_dir: Folder of the cache on disk; None for no such cache.

    Returns:
        The image, whose entries are in the order of `expressions`.

    Raises:
        CompilerNotFoundError: There is no compiler for `target`.
        KernelCompileError: The source does not compile; has the log, with the user's lines.
        UnknownKernelError: One of `expressions` is not in the source.
    """
    anonymous = _anonymous(source, expressions)
    try:
        for _ in range(_MAX_CHANGES):
            with contextlib.suppress(_FilesChanged):
                return _compile_once(anonymous, expressions, target, cache_dir)
        raise KernelCompileError(
            f"kernel '{expressions[0]}': the files that {source.filename} includes changed each of "
            f"{_MAX_CHANGES} times while they were compiled: call it again when they are written"
        )
    except (KernelCompileError, UnknownKernelError) as error:
        raise relocated(error, anonymous, source) from None


class _FilesChanged(Exception):
    """A file that the source includes changed while a compiler read it."""


def _anonymous(source: Source, expressions: Sequence[str]) -> Source:
    """The source under a name that stays when the file around it is edited, and its image with it.

    A file of its own keeps its name, which profilers open.
    """
    if source.is_file:
        return source
    return replace(source, filename=f"<{', '.join(expressions)}>", line=1)


def source_digest(source: Source, expressions: Sequence[str], target: str) -> str:
    """Names all that an image of a source depends on, in hexadecimal.

    Raises:
        CompilerNotFoundError: There is no compiler for `target`.
    """
    return _key(_anonymous(source, expressions), expressions, target)


def _compile_once(
    source: Source, expressions: Sequence[str], target: str, cache_dir: Path | None
) -> Image:
    key = _key(source, expressions, target)
    memory = _memory
    while True:
        with memory.lock:
            known = memory.images.get(key)
            if known is None:
                mine: Future[Image] = Future()
                memory.images[key] = mine
                if len(memory.images) > _MAX_IMAGES:
                    memory.images.popitem(last=False)
                break
            memory.images.move_to_end(key)
            memory.counts["memory_hits"] += 1
        try:
            return known.result()
        except CancelledError:
            continue  # Its thread was interrupted, which is no business of this one.
    try:
        image = _load_or_compile(memory, key, source, expressions, target, cache_dir)
    except BaseException as error:
        # The next one to ask tries again: the reason may be gone.
        with memory.lock:
            if memory.images.get(key) is mine:
                del memory.images[key]
        if isinstance(error, Exception):
            mine.set_exception(error)
        else:
            mine.cancel()
        raise
    mine.set_result(image)
    return image


def compile_counts() -> dict[str, int]:
    """Returns how often this process compiled, and took an image from disk or from memory."""
    memory = _memory
    with memory.lock:
        return {what: memory.counts[what] for what in ("compiled", "disk_hits", "memory_hits")}


def reset_counts() -> None:
    """Sets the counts to zero."""
    memory = _memory
    with memory.lock:
        memory.counts.clear()


def clear_memory() -> None:
    """Forgets the images that this process keeps; the counts stay."""
    memory = _memory
    with memory.lock:
        memory.images.clear()


def _load_or_compile(
    memory: _Memory,
    key: str,
    source: Source,
    expressions: Sequence[str],
    target: str,
    cache_dir: Path | None,
) -> Image:
    if cache_dir is not None and (found := cache.get(cache_dir, key)) is not None:
        memory.count("disk_hits")
        return _from_cache(*found)

    def check_files() -> None:
        # The compilers open included files themselves: what the key names may be other contents.
        if _key(source, expressions, target) != key:
            raise _FilesChanged

    try:
        if target in CPU_TARGETS:
            image = host.compile_shared_object(source, expressions, checked=target == "cpu-checked")
        else:
            image = gpu.compile_image(source, expressions, target, cache_dir)
    except Exception:
        check_files()
        raise
    check_files()
    memory.count("compiled")
    if cache_dir is not None:
        header = {"entries": [asdict(entry) for entry in image.entries], "log": image.log}
        cache.put(cache_dir, key, header, image.data)
    return image


def _from_cache(header: dict[str, object], data: bytes) -> Image:
    entries = header["entries"]
    assert isinstance(entries, list)
    return Image(
        data,
        tuple(
            Entry(
                entry["expression"],
                entry["symbol"],
                tuple(entry["types"]),
                None if entry["sizes"] is None else tuple(entry["sizes"]),
            )
            for entry in entries
        ),
        str(header["log"]),
    )


def _key(source: Source, expressions: Sequence[str], target: str) -> str:
    """Names an image by all that its bytes depend on."""
    tool = host if target in CPU_TARGETS else gpu
    parts = [
        _KEY_VERSION,
        asdict(replace(source, folder=None)),  # it matters by the files that are found there
        included_files(source),
        list(expressions),
        target,
        tool.identity(),
        tool.headers_digest(),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

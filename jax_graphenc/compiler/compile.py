"""Source to image, through a cache in memory and one on disk."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import asdict, replace
from pathlib import Path

from jax_graphenc.base.errors import KernelCompileError
from jax_graphenc.base.tracebacks import warn
from jax_graphenc.compiler import cache, gpu, host
from jax_graphenc.compiler.diagnostics import UnknownKernelError, relocated, with_encodings
from jax_graphenc.compiler.includes import find_includes, state_now, states_of
from jax_graphenc.compiler.readings import Readings
from jax_graphenc.compiler.source import Entry, Image, Source

cache.tell = warn

_MAX_IMAGES = 1024
_MAX_CHANGES = 10
_KEY_VERSION = 5  # Raise it when the same input gives other images for a reason not in the key.

CPU_TARGETS = ("cpu", "cpu-checked")


_TICK_NS = 100_000_000  # Clocks of file systems tick rarely.

# An image, and the states of the files that it depends on.
_Known = tuple[Image, dict[str, str]]


class _Memory:
    """Images of this process by key, the least recently used one first; some not yet ready."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.images: OrderedDict[str, Future[_Known]] = OrderedDict()
        self.readings = Readings()
        self.counts: Counter[str] = Counter()

    def forget(self, key: str, image: Future[_Known]) -> None:
        """Removes an image that could not be made."""
        with self.lock:
            if self.images.get(key) is image:
                del self.images[key]

    def replace(self, key: str, image: Future[_Known], new: str) -> None:
        """Gives an image the key of the files that it was made with."""
        self.forget(key, image)
        with self.lock:
            self.images[new] = image
            if len(self.images) > _MAX_IMAGES:
                self.images.popitem(last=False)

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
        return _from_memory(anonymous, expressions, target, cache_dir)
    except (KernelCompileError, UnknownKernelError) as error:
        raise relocated(error, anonymous, source) from None


def compiled_text(
    source: Source, expressions: Sequence[str], target: str, cache_dir: Path | None
) -> str:
    """The text that a compiler is given: what is put before the source, and what is left of it.

    Compiles, and raises what `compile_source` raises.
    """
    if target in CPU_TARGETS:
        return host.compiled_text(source, expressions, checked=target == "cpu-checked")
    return gpu.compiled_text(source, expressions, target, cache_dir)


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
    anonymous = _anonymous(source, expressions)
    return _image_key(_text_key(anonymous, expressions, target), find_includes(source))


def _from_memory(
    source: Source, expressions: Sequence[str], target: str, cache_dir: Path | None
) -> Image:
    """Finds an image in memory, waits for a thread that makes it, or makes it."""
    memory = _memory
    text = _text_key(source, expressions, target)
    files = memory.readings.find(text, _place(source), cache_dir)
    expected = find_includes(source) if files is None else files
    key = _image_key(text, expected)
    while True:
        with memory.lock:
            known = memory.images.get(key)
            if known is None:
                mine: Future[_Known] = Future()
                memory.images[key] = mine
                break
            memory.images.move_to_end(key)
            memory.counts["memory_hits"] += 1
        try:
            image, files = known.result()
        except CancelledError:
            continue  # Its thread was interrupted, which does not concern this one.
        source.files.update(files)
        return image
    try:
        result = _load(memory, text, files, cache_dir)
        if result is None:
            result = _compile(source, expressions, target, cache_dir, expected)
            memory.count("compiled")
            _keep(memory, text, _place(source), *result, cache_dir)
    except BaseException as error:
        # The next one to ask tries again: the reason may be gone.
        memory.forget(key, mine)
        if isinstance(error, Exception):
            mine.set_exception(error)
        else:
            mine.cancel()
        raise
    mine.set_result(result)
    memory.replace(key, mine, _image_key(text, result[1]))
    source.files.update(result[1])
    return result[0]


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


def _load(
    memory: _Memory, text: str, files: dict[str, str] | None, cache_dir: Path | None
) -> _Known | None:
    """Takes an image from disk. Of a text whose files are not known, one that reads none."""
    if cache_dir is None:
        return None
    found = cache.get(cache_dir, _image_key(text, files or {}))
    if found is None:
        return None
    memory.count("disk_hits")
    return _from_cache(*found), files or {}


def _keep(
    memory: _Memory,
    text: str,
    place: str,
    image: Image,
    files: dict[str, str],
    cache_dir: Path | None,
) -> None:
    """Puts an image and the files that it was made with into the caches."""
    if cache_dir is not None:
        header = {"entries": [asdict(entry) for entry in image.entries], "log": image.log}
        cache.put(cache_dir, _image_key(text, files), header, image.data)
    memory.readings.add(text, place, files, cache_dir)


def _compile(
    source: Source,
    expressions: Sequence[str],
    target: str,
    cache_dir: Path | None,
    before: dict[str, str],
) -> _Known:
    """Compiles a source, again if one of its files changes meanwhile.

    Compilers open included files themselves, so what they read is known only where each file's
    contents are the same before and after.

    Args:
        source: The source.
        expressions: Its kernels.
        target: What to compile for.
        cache_dir: Folder of the cache on disk.
        before: The states of the files that it includes, as far as they are known.

    Raises:
        KernelCompileError: It does not compile, or its files change each time.
    """
    for _ in range(_MAX_CHANGES):
        start = time.time_ns()
        try:
            if target in CPU_TARGETS:
                checked = target == "cpu-checked"
                image = host.compile_shared_object(source, expressions, checked=checked)
            else:
                image = gpu.compile_image(source, expressions, target, cache_dir)
        except Exception as error:
            if all(state_now(path, state) == state for path, state in before.items()):
                if isinstance(error, KernelCompileError):
                    raise with_encodings(error, find_includes(source)) from None
                raise
            before = find_includes(source)
            continue
        read = find_includes(source) if image.files is None else image.files
        states = states_of(source, read)
        changed = [
            path
            for path in read
            if before.get(path) != states[path] and not _is_older(path, start - _TICK_NS)
        ]
        if not changed:
            return image, states
        before = {**before, **states}
    raise KernelCompileError(
        f"kernel '{expressions[0]}': the files that {source.filename} includes changed each of "
        f"{_MAX_CHANGES} times while they were compiled: call it again when they are written"
    )


def _is_older(path: str, time_ns: int) -> bool:
    """Whether a file was last changed before a time."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return max(status.st_mtime_ns, status.st_ctime_ns) < time_ns


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


def _place(source: Source) -> str:
    """The folder that a source's includes are relative to."""
    return str(source.base)


def _text_key(source: Source, expressions: Sequence[str], target: str) -> str:
    """Names all that an image depends on but the files that its source includes."""
    tool = host if target in CPU_TARGETS else gpu
    parts = [
        _KEY_VERSION,
        *(source.text, source.filename, source.line, source.is_file),
        *(source.defines, source.options, source.headers),
        [os.path.abspath(folder) for folder in source.include_folders],
        list(expressions),
        target,
        tool.identity(),
        tool.headers_digest(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _image_key(text: str, files: dict[str, str]) -> str:
    """Names an image by all that its bytes depend on."""
    return hashlib.sha256(json.dumps([text, files], sort_keys=True).encode()).hexdigest()

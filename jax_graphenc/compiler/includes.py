"""The user's files that a source includes: as its text shows, and as a compiler has read them.

A file has a state: the SHA-256 of its contents, `ABSENT` where a compiler looked in vain, `PRESENT`
where it only asked whether there is one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jax_graphenc.compiler.source import Source

ABSENT = "absent"
PRESENT = "present"

# Spaces and comments. The text has been spliced: no line is continued on the next.
_SPACE = r"(?:[ \t\f\v]|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*"
_HASH = rf"(?:^|\*/){_SPACE}(?:\#|%:|\?\?=){_SPACE}"
_TARGET = r'(?P<target>"[^"\n]*"|<[^>\n]*>|[^\s)][^\n)]*)'
_INCLUDE = re.compile(
    rf"(?:{_HASH}(?:include|include_next|import|embed)(?=[\s\"</\w])|"
    rf"\b(?P<asked>__has_(?:include|include_next|embed)){_SPACE}\(){_SPACE}{_TARGET}",
    re.MULTILINE,
)
_DEFINE = re.compile(rf"{_HASH}define\b(?P<body>[^\n]*)", re.MULTILINE)
_FILE = re.compile(r'"[^"\n]+"|<[^>\n]+>')
_PRE_INCLUDE = re.compile(r"^--?(?:pre-)?include[=\n](.+)$", re.MULTILINE)
_CONTINUED = re.compile(r"(?:\\|\?\?/)[ \t]*\r?\n")


@dataclass(frozen=True, slots=True)
class _Target:
    """What a directive names: `"name"` or `<name>`, included or only asked for."""

    name: str
    quoted: bool
    asked: bool


@dataclass(slots=True)
class _Text:
    """The targets in a text, those in its macros, and whether a directive names a macro."""

    targets: list[_Target]
    macros: list[_Target]
    names_macro: bool


def _read_text(text: str) -> _Text:
    """Finds what a text includes; comments count, too: more is harmless, less is not."""
    text = _CONTINUED.sub("", text)
    found = _Text([], [], False)
    if not re.search(r"include|import|embed", text):
        return found
    for match in _INCLUDE.finditer(text):
        target = match["target"]
        if _FILE.fullmatch(target):
            found.targets.append(_Target(target[1:-1], target[0] == '"', bool(match["asked"])))
        else:
            found.names_macro = True
    for match in _DEFINE.finditer(text):
        for target in _FILE.findall(match["body"]):
            found.macros.append(_Target(target[1:-1], target[0] == '"', True))
    return found


def _first_text(source: Source) -> str:
    """The text with what options have read before it."""
    options = "\n".join(source.options)
    before = "".join(f'#include "{name}"\n' for name in _PRE_INCLUDE.findall(options))
    return before + source.macro_directives + source.include_directives + source.text


def _places(source: Source, folder: Path | None, target: _Target) -> Iterator[list[str]]:
    """Where a target is looked for, in the order of each compiler."""
    beside = [folder] if target.quoted and folder is not None else []
    own = [source.base]
    added = [Path(os.path.abspath(place)) for place in source.include_folders]
    orders = [[*beside, *own, *added], [*beside, *added, *own]]
    if beside == own or not added:
        orders = orders[:1]
    for order in orders:
        yield [os.path.join(place, target.name) for place in dict.fromkeys(order)]


def resolve(source: Source, folder: Path, name: str, *, quoted: bool) -> str | None:
    """The user's file that a directive in a file of `folder` names, as `find_includes` calls it."""
    for order in _places(source, folder, _Target(name, quoted, False)):
        for path in order:
            if os.path.isfile(path):
                return path
    return None


def includes_by_macro(source: Source) -> bool:
    """Whether a directive of the source or of one of its files names a macro."""
    texts = [_first_text(source)]
    texts += [Path(path).read_text("utf-8-sig", "replace") for path in find_includes(source)]
    return any(_read_text(text).names_macro for text in texts)


def find_includes(
    source: Source,
    looking_at: Callable[[str], object] = lambda _: None,
    spelled: dict[str, set[str]] | None = None,
) -> dict[str, str]:
    """Finds the user's files that a source includes, directly or not, by reading it.

    Conditions are not evaluated, and a macro stands for every file that a macro names, so this may
    find more than a compiler reads. Files outside of the source's folder and the include paths in
    its options belong to a toolkit or the system, and are not looked for.

    Args:
        source: The source.
        looking_at: Called with the path of each file before it is read, and of each place where
            there is none.
        spelled: Is given the paths of the files that each name in a directive stands for.

    Returns:
        The states of the files that are there.
    """
    found: dict[str, str] = {}
    # Paths may lead through `..` and back, so what was read is known by file and folder.
    read: set[tuple[int, int, str]] = set()
    macros: list[_Target] = []
    with_macros: list[Path | None] = []
    pending: list[tuple[str, Path | None]] = [(_first_text(source), source.base)]
    while pending:
        text, folder = pending.pop()
        names = _read_text(text)
        wanted = [(folder, target) for target in names.targets]
        if names.names_macro:
            with_macros.append(folder)
            wanted += [(folder, target) for target in macros]
        macros += names.macros
        wanted += [(place, target) for place in with_macros for target in names.macros]
        for beside, target in wanted:
            for path in _first_of_each(_places(source, beside, target), looking_at):
                if spelled is not None:
                    spelled.setdefault(target.name, set()).add(os.path.realpath(path))
                if path in found:
                    continue
                try:
                    with open(path, "rb") as file:
                        status = os.fstat(file.fileno())
                        contents = file.read()
                except OSError:
                    continue
                place = (status.st_dev, status.st_ino, os.path.realpath(os.path.dirname(path)))
                if place not in read:
                    read.add(place)
                    found[path] = hashlib.sha256(contents).hexdigest()
                    pending.append((contents.decode("utf-8-sig", "replace"), Path(path).parent))
    return found


def _first_of_each(orders: Iterable[list[str]], looking_at: Callable[[str], object]) -> set[str]:
    """The first file that is there of each list."""
    found = set()
    for order in orders:
        for path in order:
            looking_at(path)
            if os.path.isfile(path):
                found.add(path)
                break
    return found


def states_of(source: Source, read: Iterable[str]) -> dict[str, str]:
    """The states of all files that an image depends on.

    Args:
        source: What was compiled.
        read: The paths of the user's files that the compiler has read.

    Returns:
        The files that were read, those that were only asked for, and the places where one that
        appears would be read instead.
    """
    states: dict[str, str] = {}
    texts: list[tuple[str, Path | None]] = [(_first_text(source), source.base)]
    for path in read:
        try:
            contents = Path(path).read_bytes()
        except OSError:
            states[path] = ABSENT
            continue
        states[path] = hashlib.sha256(contents).hexdigest()
        texts.append((contents.decode("utf-8-sig", "replace"), Path(path).parent))
    real = {os.path.realpath(path) for path in states}
    names = [(_read_text(text), beside) for text, beside in texts]
    macros = [target for found, _ in names for target in found.macros]
    explained: set[str] = set()
    for found, beside in names:
        for target in (*found.targets, *(macros if found.names_macro else ())):
            for order in _places(source, beside, target):
                for path in order:
                    if not os.path.isfile(path):
                        states[path] = ABSENT
                        continue
                    if os.path.realpath(path) in real:
                        explained.add(os.path.realpath(path))
                    elif target.asked:
                        states[path] = PRESENT
                    break
    # What macros put together: by the folder in which it was found, perhaps after others.
    for path in real - explained:
        for place in map(str, (source.base, *source.include_folders)):
            folder = os.path.realpath(place)
            if path.startswith(f"{folder}{os.sep}"):
                name = os.path.relpath(path, folder)
                for order in _places(source, None, _Target(name, False, False)):
                    states.update((p, ABSENT) for p in order if not os.path.isfile(p))
    return states


def state_now(path: str, before: str) -> str:
    """The state of a file now, as one that was in the state `before` is looked at."""
    if before == PRESENT:
        return PRESENT if os.path.isfile(path) else ABSENT
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ABSENT


def still(states: dict[str, str]) -> bool:
    """Whether all files are as they were."""
    return all(state_now(path, state) == state for path, state in states.items())


def users_files(
    paths: Iterable[str], source: Source, cwd: str | Path, others: Iterable[str | Path]
) -> tuple[str, ...]:
    """Those of a compiler's list of files that are neither its own nor ours.

    Args:
        paths: What the compiler has read.
        source: What was compiled, whose folders are the user's.
        cwd: Where the compiler ran.
        others: Folders of files that a key of a cache covers otherwise. Of nested folders the
            innermost decides.
    """

    def depth(path: str, folders: Sequence[str | Path]) -> int:
        inside = [os.path.join(os.path.abspath(f), "") for f in folders]
        return max((len(f) for f in inside if path.startswith(f)), default=0)

    users: list[str | Path] = [source.base, *source.include_folders]
    keyed = list(others)
    found = []
    for name in dict.fromkeys(paths):
        path = os.path.join(cwd, name)
        plain = os.path.normpath(path)
        if depth(plain, users) >= depth(plain, keyed) and os.path.isfile(path):
            found.append(path)
    return tuple(found)

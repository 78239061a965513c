"""What ``cuda_kernel`` takes as a source: text, files, images, and what is said of them beside."""

from __future__ import annotations

import copy
import functools
import linecache
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jax_graphenc.base.errors import telling
from jax_graphenc.base.notebooks import name_of_file
from jax_graphenc.base.tracebacks import PACKAGE
from jax_graphenc.calls.code import Prebuilt
from jax_graphenc.compiler.encoding import read_source
from jax_graphenc.compiler.files import FollowedSource
from jax_graphenc.compiler.source import Source
from jax_graphenc.signature.globals import with_globals
from jax_graphenc.signature.literals import macro_of

MODULE = "module"
"""What the source of a module is called, which is not one kernel's."""

_IMAGE_SUFFIXES = (".ptx", ".cubin", ".fatbin")
_PATH_SUFFIXES = (*_IMAGE_SUFFIXES, ".cu", ".cuh", ".cc", ".cpp", ".h", ".hpp")
# A name, perhaps with arguments.
_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w\s,.]*\))?")


def prebuilt(image: bytes | Mapping[str, bytes], name: str) -> Prebuilt:
    """Images from the bytes of one for CUDA, or from several by platform.

    Raises:
        ValueError: for a platform that is none.
        TypeError: for what is no image.
    """
    images = {"cuda": image} if isinstance(image, bytes) else dict(image)
    if wrong := set(images) - {"cuda", "cpu"}:
        raise ValueError(
            f"kernel '{name}': an image for {', '.join(map(repr, sorted(wrong)))}: the platforms "
            "are 'cuda' and 'cpu'"
        )
    for data in images.values():
        if not isinstance(data, bytes) or not data:
            raise TypeError(f"kernel '{name}': an image is bytes that are not empty; got {data!r}")
        if b"__global__" in data and data.isascii() and b".version" not in data:
            raise TypeError(
                f"kernel '{name}': bytes are taken for an image, and these are CUDA source: "
                "pass a string, source.decode()"
            )
    return Prebuilt(tuple(sorted(images.items())))


def check_name(name: Any, source: Any) -> None:
    """Refuses what is no kernel's name.

    Raises:
        TypeError: for what is no string.
        ValueError: for a source in the place of the name.
    """
    if not isinstance(name, str):
        raise TypeError(
            "a kernel's name is a string, such as 'scale' or 'scale<{x}>'; got "
            f"{type(name).__name__}"
        )
    if not name.strip():
        raise ValueError("a kernel's name is empty; a name is expected, such as 'scale'")
    is_source = "__global__" in name or "\n" in name or ";" in name
    if is_source or is_path(name):
        what = "CUDA source" if is_source else "a file"
        also = f", and source= is {source!r}" if len(str(source)) < 50 else ""
        raise ValueError(
            f"name= is {what}{also}: the source comes first, cuda_kernel(source, name, ...)"
        )


def read_image(source: Any) -> Any:
    """The bytes of an image that is given by its path; anything else as it is."""
    if isinstance(source, Path) and source.suffix in _IMAGE_SUFFIXES:
        return source.read_bytes()
    return source


def refuse_for_images(name: str, *of_source: Any) -> None:
    """Refuses what only a source has.

    Raises:
        TypeError: if any is given.
    """
    if any(of_source):
        raise TypeError(
            f"kernel '{name}' is given as an image, which is compiled already: defines=, "
            "options=, include_dirs= and globals= are for source"
        )


def follow(
    source: Any,
    name: str,
    defines: Mapping[str, Any] | None,
    options: Sequence[str],
    include_dirs: Sequence[str | os.PathLike[str]],
    globals: Mapping[str, Any] | None,
) -> FollowedSource:
    """A source from what ``cuda_kernel`` takes, or one with further macros, options and values.

    Raises:
        TypeError: for what is none.
        ValueError: for text that looks like a path, a folder that is none, or values of variables
            that are not there.
        OSError: if a file cannot be read.
    """
    path = None
    if isinstance(source, FollowedSource):
        read, path = source.read, source.path
    elif isinstance(source, Path):
        path = str(source.absolute())
        read = functools.partial(_read_file, path, name)
    else:
        read = functools.partial(_known, _text(source, name))
    with telling(_owner(name)):
        if not isinstance(globals or {}, Mapping):
            raise TypeError(
                f"globals={globals!r}: a mapping is expected, such as {{'coefficients': array}}"
            )
        macros = macros_of(defines)
        further = (*_include_options(include_dirs), *_options(options))
    # Arrays may be written to before a file is read again.
    values = copy.deepcopy(dict(globals or {}))
    return FollowedSource(
        functools.partial(_with_further, read, name, macros, further, values), path
    )


def _owner(name: str) -> str:
    return "cuda_module" if name == MODULE else f"kernel '{name}'"


def _with_further(
    read: Callable[[], Source],
    name: str,
    macros: Mapping[str, str],
    options: Sequence[str],
    values: Mapping[str, Any],
) -> Source:
    found = read()
    with telling(_owner(name)):
        text = with_globals(found.text, values, found.filename)
    return replace(
        found,
        text=text,
        defines=tuple(sorted({**dict(found.defines), **macros}.items())),
        options=(*found.options, *options),
    )


def _read_file(path: str, name: str) -> Source:
    try:
        text = read_source(path)
    except OSError as error:
        error.add_note(f"as the source of {_owner(name)}")
        raise
    return Source(text, path, folder=Path(path).resolve().parent, is_file=True)


def _known(source: Source) -> Source:
    return source


def _text(source: Any, name: str) -> Source:
    if not isinstance(source, str):
        raise TypeError(
            f"kernel '{name}': source is CUDA C++ text, a pathlib.Path, or the bytes of an image; "
            f"got {type(source).__name__}"
        )
    if not source.strip():
        raise ValueError(f"kernel '{name}': the source is empty")
    if is_path(source):
        raise ValueError(
            f"kernel '{name}': a string is taken for CUDA source, and {source!r} looks like a "
            f"file: pass pathlib.Path({source!r})"
        )
    filename, line = _find_in_caller(source, f"<{name}>")
    caller = Path(filename)
    folder = caller.resolve().parent if caller.is_file() else None
    return Source(source, filename, line, folder=folder)


def is_path(text: str) -> bool:
    """Whether a text is a file's name and no CUDA source."""
    return "\n" not in text and text.strip().endswith(_PATH_SUFFIXES)


def macros_of(defines: Mapping[str, Any] | None) -> dict[str, str]:
    """The texts of macros by name.

    Raises:
        TypeError: for what is no name or no value of a macro.
        OverflowError: for an integer that C++ cannot hold.
    """
    if not isinstance(defines or {}, Mapping):
        raise TypeError(
            f"defines={defines!r}: a mapping is expected, such as {{'TILE': 32}}; got "
            f"{type(defines).__name__}"
        )
    found = {}
    for name, value in (defines or {}).items():
        try:
            text = macro_of(value)
        except TypeError:
            text = None
        except OverflowError as error:
            raise OverflowError(f"defines={{{name!r}: ...}}: {error}") from None
        if text is None or not isinstance(name, str) or not _MACRO.fullmatch(name):
            raise TypeError(
                f"defines={{{name!r}: {value!r}}}: a name, and a number, a string, True, False or "
                "None are expected"
            )
        found[name] = text
    return found


def _options(options: Sequence[str]) -> tuple[str, ...]:
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise TypeError(
            f"options={options!r}: a sequence of strings is expected, such as ['--use_fast_math']"
        )
    return tuple(options)


def _include_options(folders: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(folders, str | os.PathLike):
        folders = (folders,)
    paths = [Path(os.path.expanduser(folder)).absolute() for folder in folders]
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"include_dirs= names {path}, which is no folder")
    return [f"-I{path}" for path in paths]


def _find_in_caller(text: str, otherwise: str) -> tuple[str, int]:
    """File and line of a source that stands in its caller's file, so that errors point there."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    filename = frame.f_code.co_filename
    before, found, _ = "".join(linecache.getlines(filename)).partition(text)
    if not found:
        return otherwise, 1
    return name_of_file(filename), before.count("\n") + 1

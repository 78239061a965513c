"""Files as text: UTF-8, perhaps with a byte-order mark."""

from __future__ import annotations

import codecs
from pathlib import Path

MARK = codecs.BOM_UTF8
# UTF-32's little-endian mark begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_INSTEAD = "save it as UTF-8"


def read_source(path: str) -> str:
    """Reads a source file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not UTF-8.
    """
    contents = Path(path).read_bytes()
    if why := why_not_utf8(path, contents):
        raise ValueError(why)
    return contents.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def why_not_utf8(path: str, contents: bytes) -> str | None:
    """Says in which encoding a file is instead of UTF-8, or where it is none; None if it is."""
    wide = next((name for mark, name in _MARKS if contents.startswith(mark)), None)
    if wide is None and b"\0" in contents[:4]:
        wide = "UTF-32" if b"\0\0" in contents[:4] else "UTF-16"
    if wide is not None:
        return f"{path} is {wide}, which compilers do not read: {_INSTEAD}"
    try:
        contents.decode()
    except UnicodeDecodeError as error:
        line = contents.count(b"\n", 0, error.start) + 1
        return f"{path}:{line}: the byte {contents[error.start]:#04x} is no UTF-8: {_INSTEAD}"
    return None

"""How much static shared memory the functions of a CPU image declare."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from jax_graphenc.compiler.shared_memory import SHARED_PREFIX
from jax_graphenc.compiler.source import Source

LIMIT = 48 * 1024  # Bytes of a block, on every GPU.

_SYMTAB, _NOBITS = 2, 8
_OBJECT, _TLS = 1, 6
# A variable of a function: the function's name, then the variable's with its length, then a number.
_LOCAL = re.compile(r"(?P<function>_ZZ.*)E(?P<length>\d+)(?P<rest>[A-Za-z_]\w*)")


def shared_memory_error(source: Source, image: bytes, checked: bool) -> str | None:
    """Says what is wrong where a function declares more than any GPU has, as a compiler's error.

    Functions that a kernel calls count by themselves, so this may miss some.

    Args:
        source: What was compiled.
        image: The shared object: shared memory is thread-local there.
        checked: Whether it is static instead (include/host/jge_qualifiers.h).
    """
    functions: dict[str, dict[str, int]] = {}
    for symbol, size in _variables(image, checked):
        local = _LOCAL.fullmatch(symbol)
        if local is not None:
            name = local["rest"][: int(local["length"])].removeprefix(SHARED_PREFIX)
            functions.setdefault(local["function"], {})[name] = size
        elif not checked:
            functions[symbol] = {symbol: size}
    for variables in functions.values():
        total = sum(variables.values())
        if total > LIMIT:
            names = ", ".join(f"'{name}' ({size})" for name, size in variables.items())
            largest = max(variables, key=lambda name: variables[name])
            return (
                f"{source.filename}:{_line_of(source, largest)}: error: {total} bytes of static "
                f"__shared__ memory: {names}; a GPU has at most {LIMIT} for a block. Declare it as "
                "extern __shared__ and pass shared_mem= for more"
            )
    return None


def _line_of(source: Source, name: str) -> int:
    found = re.search(rf"__shared__[^;]*?\b{re.escape(name)}\b", source.text)
    return source.line + (source.text.count("\n", 0, found.end()) if found else 0)


def _variables(image: bytes, checked: bool) -> Iterator[tuple[str, int]]:
    """Symbols and sizes of the variables that may be shared memory, from an ELF64 symbol table."""
    (offset,) = struct.unpack_from("<Q", image, 0x28)
    count, _ = struct.unpack_from("<HH", image, 0x3C)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, offset + 64 * i) for i in range(count)]
    for _, kind, _, _, start, size, strings, _, _, entry in sections:
        if kind != _SYMTAB:
            continue
        names = sections[strings][4]
        for at in range(start, start + size, entry):
            name, info, _, section, _, bytes_ = struct.unpack_from("<IBBHQQ", image, at)
            static = info & 15 == _OBJECT and section < count and sections[section][1] == _NOBITS
            if static if checked else info & 15 == _TLS:
                begin = names + name
                yield image[begin : image.index(b"\0", begin)].decode(), bytes_

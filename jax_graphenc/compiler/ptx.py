"""What PTX tells of its kernels."""

from __future__ import annotations

import re

_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z]+(?P<bits>\d+)[^,\[\]]*(?:\[(?P<count>\d+)\])?"
)
_EXTERN = re.compile(r"^\.extern \.func\s+(?:\([^)]*\)\s*)?(?P<symbol>[\w$]+)", re.MULTILINE)


def parameter_sizes(ptx: str, symbol: str) -> tuple[int, ...] | None:
    """Reads the bytes of each parameter of a kernel out of PTX, or returns None."""
    match = re.search(rf"\.entry\s+{re.escape(symbol)}\s*\((?P<params>[^)]*)\)", ptx)
    if match is None:
        # An entry without parameters may also come without parentheses.
        return () if re.search(rf"\.entry\s+{re.escape(symbol)}\s", ptx) else None
    return tuple(
        int(param["bits"]) // 8 * int(param["count"] or 1)
        for param in _PARAM.finditer(match["params"])
    )


def extern_functions(ptx: str) -> list[str]:
    """The functions that PTX calls and does not define."""
    return [match["symbol"] for match in _EXTERN.finditer(ptx)]

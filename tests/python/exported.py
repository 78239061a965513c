"""exported.py: the programs inside an exported function."""

import re


def programs(exported):
    """The bytes of each program, out of the text of the module."""
    quoted = re.findall(
        r'@jax_graphenc\.(?:uncaptured_)?program\.v\d+.*?program = "((?:[^"\\]|\\.)*)"',
        exported.mlir_module(),
        re.DOTALL,
    )
    return [
        re.sub(
            rb"\\(\\|[0-9A-F]{2})",
            lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 16)]),
            text.encode(),
        )
        for text in quoted
    ]

"""C++ types out of mangled names (Itanium ABI)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

# The lowered name of an instance of this holds the kernel's type, whatever aliases, macros and
# templates it was written with.
TYPE_PROBE = "template <typename __jge_F> __device__ char __jge_type_of;\n"


@functools.cache
def _cxa_demangle() -> Callable[[bytes], bytes | None]:
    """Returns `__cxa_demangle` of the C++ runtime, or a function that declines."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        function = library.__cxa_demangle
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return lambda name: None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free.argtypes = [ctypes.c_void_p]

    def demangle_bytes(name: bytes) -> bytes | None:
        result = function(name, None, None, None)
        if not result:
            return None
        try:
            return ctypes.string_at(result)
        finally:
            free(result)

    return demangle_bytes


def demangle(name: str) -> str:
    """Demangles a C++ symbol or type; what is not a mangled name comes back as it is."""
    result = _cxa_demangle()(name.encode())
    return name if result is None else result.decode()


def parameter_types(function_type: str) -> tuple[str, ...]:
    """Splits `"void (*)(float const*, int)"` into `("float const*", "int")`."""
    start = function_type.index("(*)(") + len("(*)(")
    types = [""]
    depth = 0
    for character in function_type[start:]:
        if character == ")" and depth == 0:
            break
        depth += (character in "(<[{") - (character in ")>]}")
        if character == "," and depth == 0:
            types.append("")
        else:
            types[-1] += character
    return tuple(stripped for t in types if (stripped := t.strip()))

"""CUDA's C++ types as numpy dtypes.

The data model is LP64 (`long` has 64 bits), as on every platform where JAX runs CUDA.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


@dataclass(frozen=True, slots=True)
class CType:
    """A scalar C++ type: CUDA's spelling, its dtype, and the header that declares it, if any."""

    spelling: str
    dtype: np.dtype[Any]
    header: str | None = None


# One type per dtype: the one that stands for it in `{x}`.
_SCALARS = (
    CType("bool", np.dtype(np.bool_)),
    CType("signed char", np.dtype(np.int8)),
    CType("unsigned char", np.dtype(np.uint8)),
    CType("short", np.dtype(np.int16)),
    CType("unsigned short", np.dtype(np.uint16)),
    CType("int", np.dtype(np.int32)),
    CType("unsigned int", np.dtype(np.uint32)),
    CType("long long", np.dtype(np.int64)),
    CType("unsigned long long", np.dtype(np.uint64)),
    CType("float", np.dtype(np.float32)),
    CType("double", np.dtype(np.float64)),
    CType("__half", np.dtype(np.float16), "cuda_fp16.h"),
    CType("__nv_bfloat16", np.dtype(ml_dtypes.bfloat16), "cuda_bf16.h"),
    CType("__nv_fp8_e4m3", np.dtype(ml_dtypes.float8_e4m3fn), "cuda_fp8.h"),
    CType("__nv_fp8_e5m2", np.dtype(ml_dtypes.float8_e5m2), "cuda_fp8.h"),
    CType("__nv_fp8_e8m0", np.dtype(ml_dtypes.float8_e8m0fnu), "cuda_fp8.h"),
    CType("cuFloatComplex", np.dtype(np.complex64), "cuComplex.h"),
    CType("cuDoubleComplex", np.dtype(np.complex128), "cuComplex.h"),
)
_BY_SPELLING = MappingProxyType({t.spelling: t for t in _SCALARS})
_BY_DTYPE = MappingProxyType({t.dtype: t for t in _SCALARS})

# Other names of the same types; those of <cstdint> and <cstddef> also in std:: and cuda::std::.
_SYNONYMS = MappingProxyType(
    {
        "char": "signed char",
        "long": "long long",
        "unsigned long": "unsigned long long",
        "uint": "unsigned int",
        "ushort": "unsigned short",
        "ulong": "unsigned long long",
        "half": "__half",
        "nv_bfloat16": "__nv_bfloat16",
        **{f"{space}::Half": "__half" for space in ("at", "c10", "torch")},
        **{f"{space}::BFloat16": "__nv_bfloat16" for space in ("at", "c10", "torch")},
        "cuComplex": "cuFloatComplex",
        "complex<float>": "cuFloatComplex",
        "complex<double>": "cuDoubleComplex",
        "size_t": "unsigned long long",
        "ptrdiff_t": "long long",
        "intptr_t": "long long",
        "uintptr_t": "unsigned long long",
        **{
            f"{u}int{bits}_t": f"{sign}{word}"
            for bits, word in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
            for u, sign in (("", "signed " if bits == 8 else ""), ("u", "unsigned "))
        },
    }
)
_SCOPED = re.compile(r"(?:::)?(?:(?P<std>(?:cuda::)?std)|(?P<thrust>thrust))::(?P<rest>.*)")

_INTEGER_WORDS = frozenset({"signed", "unsigned", "char", "short", "int", "long"})

_PACKED = MappingProxyType(
    {
        "__half2": ("__half", 2),
        "half2": ("__half", 2),
        "__nv_bfloat162": ("__nv_bfloat16", 2),
        "nv_bfloat162": ("__nv_bfloat16", 2),
    }
    | {f"__nv_fp8x{n}_{f}": (f"__nv_fp8_{f}", n) for n in (2, 4) for f in ("e4m3", "e5m2", "e8m0")}
)
_VECTOR = re.compile(
    r"(?P<base>u?(?:char|short|int|longlong|long)|float|double)(?P<lanes>[1-4])"
    r"(?P<aligned>_(?:16|32)a)?"
)


def canonical(spelling: str) -> str:
    """The one spelling of a type: CUDA's word order for integers, no needless space.

    `long int unsigned` becomes `unsigned long`, `std :: pair<int,float>` becomes
    `std::pair<int, float>`. Qualifiers are left where they are.
    """
    tokens = re.findall(r"::|\w+|[^\s\w]", spelling)
    words = set(tokens)
    if tokens and words <= _INTEGER_WORDS:
        return _integer(tokens) or " ".join(tokens)
    text = ""
    for previous, token in zip(["", *tokens], tokens, strict=False):
        both_words = re.match(r"\w", token) and re.search(r"\w$", previous)
        after = previous in ("*", "&", ">") and re.match(r"[^\W\d]", token)
        text += (" " if both_words or after else "") + token
    return text.replace(",", ", ")


def _integer(words: list[str]) -> str | None:
    """The standard name of an integer type given by its words in any order; None: not a type."""
    longs, shorts, chars = words.count("long"), words.count("short"), words.count("char")
    signs = words.count("signed") + words.count("unsigned")
    ints = words.count("int")
    if signs > 1 or ints > 1 or longs > 2 or shorts > 1 or chars > 1:
        return None
    if (longs > 0) + shorts + chars > 1 or (chars and ints):
        return None
    sign = "unsigned " if "unsigned" in words else ""
    if chars:
        return "signed char" if "signed" in words else sign + "char"
    return sign + ("short" if shorts else " ".join(["long"] * longs) or "int")


@cache
def dtype_of(spelling: str) -> np.dtype[Any] | None:
    """The numpy dtype of a scalar C++ type, or None if JAX and CUDA do not share it.

    Args:
      spelling: the type as C++ writes it, with or without `const` and `volatile`.
    """
    name = re.sub(r"\b(?:const|volatile)\b", " ", spelling)
    name = canonical(name)
    if scoped := _SCOPED.fullmatch(name):
        rest = scoped["rest"]
        of_std = rest.endswith("_t") or rest.startswith("complex<")
        if not (of_std if scoped["std"] else rest.startswith("complex<")):
            return None
        name = rest
    elif name.startswith("complex<"):
        return None  # whose complex is that?
    else:
        name = name.removeprefix("::")
    scalar = _BY_SPELLING.get(_SYNONYMS.get(name, name))
    return scalar.dtype if scalar else None


@cache
def element_of(spelling: str) -> tuple[np.dtype[Any], int] | None:
    """What memory of a C++ type consists of: the dtype of its elements, and how many in one.

    `float4` gives `(float32, 4)`, a scalar gives itself and 1, anything else None. The vector's
    alignment may exceed that of its elements (16 bytes for `float4`).
    """
    if scalar := dtype_of(spelling):
        return scalar, 1
    name = canonical(re.sub(r"\b(?:const|volatile)\b", " ", spelling)).removeprefix("::")
    if packed := _PACKED.get(name):
        return _BY_SPELLING[packed[0]].dtype, packed[1]
    vector = _VECTOR.fullmatch(name)
    if not vector or (vector["aligned"] and not re.match(r"(u?long|double).*4_", name)):
        return None
    base = vector["base"].replace("longlong", "long long")
    element = dtype_of("unsigned " + base[1:] if base.startswith("u") else base)
    assert element is not None
    return element, int(vector["lanes"])


def holds(spelling: str, dtype: DTypeLike) -> bool:
    """Whether memory of a C++ type may hold an array of a dtype; True for an unknown type.

    A vector holds its elements, and a vector of two floats a complex number too.
    """
    element = element_of(spelling)
    if element is None or element[0] == dtype:
        return True
    pairs = {
        np.dtype("complex64"): np.dtype("float32"),
        np.dtype("complex128"): np.dtype("float64"),
    }
    return element == (pairs.get(np.dtype(dtype)), 2)


def _scalar(dtype: DTypeLike) -> CType:
    """The CUDA type of a dtype.

    Raises:
      TypeError: if CUDA has none.
    """
    if scalar := _BY_DTYPE.get(np.dtype(dtype)):
        return scalar
    have = ", ".join(str(t.dtype) for t in _SCALARS)
    raise TypeError(f"CUDA C++ has no type for dtype {np.dtype(dtype)}; it has one for {have}")


def spelling_of(dtype: DTypeLike) -> str:
    """CUDA's C++ spelling of a numpy dtype: `float`, `long long`, `__nv_bfloat16`.

    Raises:
      TypeError: if CUDA has no such type.
    """
    return _scalar(dtype).spelling


def header_of(dtype: DTypeLike) -> str | None:
    """The CUDA header that declares `spelling_of(dtype)`; None if the type is built in.

    Raises:
      TypeError: if CUDA has no such type.
    """
    return _scalar(dtype).header

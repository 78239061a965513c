"""What a source may use without an #include: the same names for the CPU, NVRTC and nvcc.

nvcc's users have most of them from CUDA's own headers; NVRTC's have none. One list makes the text
that each compiler reads before the source, and the test that compiles every name on all of them.
"""

from __future__ import annotations

# By header. For NVRTC the headers are those of include/nvrtc.
CONSTANTS = {
    "cfloat": (
        *("FLT_RADIX", "FLT_MANT_DIG", "FLT_DIG", "FLT_DECIMAL_DIG", "FLT_MIN_EXP", "FLT_MAX_EXP"),
        *("FLT_MIN_10_EXP", "FLT_MAX_10_EXP", "FLT_MAX", "FLT_MIN", "FLT_TRUE_MIN", "FLT_EPSILON"),
        *("DBL_MANT_DIG", "DBL_DIG", "DBL_DECIMAL_DIG", "DBL_MIN_EXP", "DBL_MAX_EXP"),
        *("DBL_MIN_10_EXP", "DBL_MAX_10_EXP", "DBL_MAX", "DBL_MIN", "DBL_TRUE_MIN", "DBL_EPSILON"),
    ),
    "climits": (
        *("CHAR_BIT", "SCHAR_MIN", "SCHAR_MAX", "UCHAR_MAX", "CHAR_MIN", "CHAR_MAX", "SHRT_MIN"),
        *("SHRT_MAX", "USHRT_MAX", "INT_MIN", "INT_MAX", "UINT_MAX", "LONG_MIN", "LONG_MAX"),
        *("ULONG_MAX", "LLONG_MIN", "LLONG_MAX", "ULLONG_MAX"),
    ),
    "cmath": (
        *("INFINITY", "NAN", "HUGE_VAL", "HUGE_VALF", "M_E", "M_LOG2E", "M_LOG10E", "M_LN2"),
        *("M_LN10", "M_PI", "M_PI_2", "M_PI_4", "M_1_PI", "M_2_PI", "M_2_SQRTPI", "M_SQRT2"),
        *("M_SQRT1_2", "MAXFLOAT"),
    ),
    "cstddef": ("NULL",),
    "cstdint": (
        *("INT8_MIN", "INT8_MAX", "UINT8_MAX", "INT16_MIN", "INT16_MAX", "UINT16_MAX"),
        *("INT32_MIN", "INT32_MAX", "UINT32_MAX", "INT64_MIN", "INT64_MAX", "UINT64_MAX"),
        *("INTPTR_MIN", "INTPTR_MAX", "UINTPTR_MAX", "INTMAX_MIN", "INTMAX_MAX", "UINTMAX_MAX"),
        *("PTRDIFF_MIN", "PTRDIFF_MAX", "SIZE_MAX"),
    ),
}
TYPES = {
    "cstddef": ("size_t", "ptrdiff_t", "std::size_t", "std::ptrdiff_t", "std::nullptr_t"),
    "cstdint": tuple(
        f"{space}{sign}int{kind}_t"
        for space in ("", "std::")
        for sign in ("", "u")
        for kind in ("8", "16", "32", "64", "ptr", "max")
    ),
}
# As glibc has them.
ALIASES = {"uint": "unsigned int", "ushort": "unsigned short", "ulong": "unsigned long"}

PRELUDE = "".join(
    [f"#include <{header}>\n" for header in sorted({*CONSTANTS, *TYPES})]
    + [f"typedef {meaning} {name};\n" for name, meaning in ALIASES.items()]
)

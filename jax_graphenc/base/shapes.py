"""Small types that every wing speaks: launch dimensions, and arrays without their contents."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Dim3 = tuple[int, int, int]
"""CUDA's ``dim3``."""

Array = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype."""


def byte_count(aval: Any) -> int:
    """Bytes of an array, from its type."""
    count: int = math.prod(aval.shape) * aval.dtype.itemsize
    return count

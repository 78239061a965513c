"""Small types shared by all wings: launch dimensions, and the shape and dtype of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Dim3 = tuple[int, int, int]
"""CUDA's ``dim3``."""

Array = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype."""


def byte_count(aval: Any) -> int:
    """Bytes of an array of an abstract value."""
    count: int = math.prod(aval.shape) * aval.dtype.itemsize
    return count

"""``kept``: caches results derived from a jaxpr for as long as the jaxpr lives."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_T = TypeVar("_T")


def kept(derive: Callable[..., _T]) -> Callable[..., _T]:
    """Caches a function of a jaxpr and hashable values for as long as the jaxpr lives.

    Its results must not refer to the jaxpr, which would then never die.
    """
    known: weakref.WeakKeyDictionary[Any, dict[Hashable, _T]] = weakref.WeakKeyDictionary()

    @functools.wraps(derive)
    def keeping(jaxpr: Any, *key: Hashable) -> _T:
        found = known.setdefault(jaxpr, {})
        if key not in found:
            found[key] = derive(jaxpr, *key)
        return found[key]

    return keeping

"""Measuring several ways of doing something beside each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

_Name = TypeVar("_Name", bound=Hashable)


def alternate(
    ways: Mapping[_Name, Callable[[], float]], *, rounds: int, warmup: int
) -> dict[_Name, list[float]]:
    """Measures each way once per round, in an order that turns, so that drift hits all alike.

    Args:
        ways: by name, functions that do it once and return what that took.
        rounds: how often.
        warmup: further rounds, before these, that do not count.
    """
    names = list(ways)
    measured: dict[_Name, list[float]] = {name: [] for name in names}
    for i in range(-warmup, rounds):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            value = ways[name]()
            if i >= 0:
                measured[name].append(value)
    return measured

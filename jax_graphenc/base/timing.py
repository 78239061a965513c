"""Timing alternatives in turn, so that they can be compared."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

_Name = TypeVar("_Name", bound=Hashable)


def alternate(
    ways: Mapping[_Name, Callable[[], float]], *, rounds: int, warmup: int
) -> dict[_Name, list[float]]:
    """Measures each way once per round, in rotating order, so that drift affects all equally.

    Args:
        ways: functions by name; a call runs once and returns the measured value.
        rounds: measurements of each way.
        warmup: rounds before these, which do not count.
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

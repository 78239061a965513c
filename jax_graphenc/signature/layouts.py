"""By-value types that a source declares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Enum:
    """An enumeration.

    Attributes:
      name: as the parameter's type spells it.
      underlying: the integer type that holds its values.
      enumerators: names and values, in its order, as far as they are known.
    """

    name: str
    underlying: str
    enumerators: tuple[tuple[str, int], ...]


Layout = Enum

"""By-value types as data: enumerations, structs, and CUDA's vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jax_graphenc.signature.types import canonical, dtype_of, element_of


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


@dataclass(frozen=True, slots=True)
class Pointer:
    """A member that is a pointer, of what C++ type, and whether that is const."""

    type: str
    const: bool


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a struct, or a fixed array of such.

    Attributes:
      name: of the member.
      type: of an element, as the source spells it.
      of: what an element is.
      shape: of a fixed array; empty for a single element.
      offset: in the struct, in bytes.
    """

    name: str
    type: str
    of: np.dtype[Any] | Enum | Struct | Pointer
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct, laid out as the C++ ABI of Linux does it."""

    name: str
    fields: tuple[Field, ...]
    size: int
    alignment: int

    @property
    def data(self) -> tuple[Field, ...]:
        """The members that are more than pointers."""
        return tuple(
            f
            for f in self.fields
            if not isinstance(f.of, Pointer) and not (isinstance(f.of, Struct) and not f.of.data)
        )

    def pointers(self, prefix: str = "", offset: int = 0) -> Iterator[tuple[str, int, Pointer]]:
        """Path, offset and type of each pointer inside."""
        for f in self.fields:
            if isinstance(f.of, Pointer):
                yield prefix + f.name, offset + f.offset, f.of
            elif isinstance(f.of, Struct) and not f.shape:
                yield from f.of.pointers(f"{prefix}{f.name}.", offset + f.offset)


@dataclass(frozen=True, slots=True)
class Opaque:
    """A struct whose layout only the compiler knows, and why."""

    name: str
    why: str


Layout = Enum | Struct | Opaque


def vector(spelling: str) -> Struct | None:
    """`float4`, `dim3` and their like as structs; None for any other type."""
    if spelling in ("dim3", "::dim3"):
        return lay_out("dim3", [("uint3", name, np.dtype(np.uint32), ()) for name in "xyz"])
    element = element_of(spelling)
    if element is None or dtype_of(spelling) is not None:
        return None
    dtype, lanes = element
    fields = [(str(dtype), name, dtype, ()) for name in "xyzw"[:lanes]]
    widest = 32 if canonical(spelling).endswith("_32a") else 16
    alignment = min(widest, lanes * dtype.itemsize) if lanes in (2, 4) else dtype.itemsize
    return lay_out(spelling, fields, alignment)


def lay_out(
    name: str,
    members: Sequence[tuple[str, str, np.dtype[Any] | Enum | Struct | Pointer, tuple[int, ...]]],
    alignment: int = 1,
) -> Struct:
    """A struct of members: (type, name, element, shape), in their order.

    Args:
      name: as the parameter's type spells it.
      members: of the struct.
      alignment: that the struct has at least.
    """
    fields: list[Field] = []
    end = 0
    for type_name, member, of, shape in members:
        size, needs = size_and_alignment(of)
        alignment = max(alignment, needs)
        offset = -(-end // needs) * needs
        fields.append(Field(member, type_name, of, shape, offset))
        count = 1
        for n in shape:
            count *= n
        end = offset + size * count
    size = max(1, -(-end // alignment)) * alignment
    return Struct(name, tuple(fields), size, alignment)


def size_and_alignment(of: np.dtype[Any] | Enum | Struct | Pointer) -> tuple[int, int]:
    """Of an element, in bytes."""
    if isinstance(of, Pointer):
        return 8, 8
    if isinstance(of, Struct):
        return of.size, of.alignment
    if isinstance(of, Enum):
        dtype = dtype_of(of.underlying)
        assert dtype is not None
        return dtype.itemsize, dtype.itemsize
    # CUDA's complex numbers are float2 and double2.
    return of.itemsize, of.itemsize

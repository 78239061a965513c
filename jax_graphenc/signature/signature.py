"""A kernel's signature as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jax_graphenc.signature.layouts import Layout


@dataclass(frozen=True, slots=True)
class Default:
    """A default argument: its text, and its value where that is known here."""

    text: str
    known: bool = False
    value: bool | int | float | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
      name: its name in the source.
      type: what a pointer points to, or the type of a value, without qualifiers.
      role: `in` for a pointer to const, `out` for another pointer, `value` for the rest.
      const: whether what a pointer points to is const; False for a value.
      pointer: whether it is a pointer.
      layout: of a value whose type the source declares.
      default: its default argument.
    """

    name: str
    type: str
    role: Literal["in", "out", "value"]
    const: bool
    pointer: bool
    layout: Layout | None = None
    default: Default | None = None

    def __str__(self) -> str:
        """The parameter as C++ declares it."""
        return f"{'const ' * self.const}{self.type}{'*' * self.pointer} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel takes.

    Attributes:
      name: the kernel as it was asked for; where it was listed, its qualified name.
      parameters: in the kernel's order.
      line: the line of its name in the source, from 1.
      template_parameters: the names of its template parameters; empty for a plain function.
      extern_c: whether it has C linkage, so that its name in the image is its plain name.
    """

    name: str
    parameters: tuple[Parameter, ...]
    line: int
    template_parameters: tuple[str, ...]
    extern_c: bool

    def __str__(self) -> str:
        """The signature as C++ declares it."""
        return f"{self.name}({', '.join(map(str, self.parameters))})"

"""Kernels as a source writes them."""

from __future__ import annotations

from dataclasses import dataclass

from jax_graphenc.signature.declared import Declared
from jax_graphenc.signature.resolve import TypeId


@dataclass(frozen=True, slots=True)
class WrittenParameter:
    """A parameter of a kernel as written."""

    name: str
    type: TypeId  # as written
    line: int
    default: str | None = None


@dataclass(frozen=True, slots=True)
class TemplateParameter:
    """A parameter of a template."""

    name: str
    default: str | None
    pack: bool


@dataclass(frozen=True, slots=True)
class WrittenKernel:
    """A `__global__` function as written."""

    name: str  # qualified, without anonymous and inline namespaces
    names: frozenset[str]  # all that it answers to
    scope: tuple[str, ...]
    line: int
    parameters: tuple[WrittenParameter, ...]
    template: tuple[TemplateParameter, ...]
    specialization: tuple[str, ...] | None  # arguments of an explicit specialization
    extern_c: bool
    is_definition: bool
    error: str | None  # "LINE: what is wrong" where the grammar could not read it

    @property
    def is_template(self) -> bool:
        """Whether it is a template, or a specialization of one."""
        return bool(self.template) or self.specialization is not None

    @property
    def title(self) -> str:
        """The name with its template parameters, or the arguments it is specialized for."""
        arguments = self.specialization or tuple(p.name or "..." for p in self.template)
        return f"{self.name}<{', '.join(arguments)}>" if self.is_template else self.name


@dataclass(frozen=True, slots=True)
class Unit:
    """What one source declares."""

    kernels: tuple[WrittenKernel, ...]
    declared: Declared

"""The enumerations and constants that a source declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from jax_graphenc.signature.constants import NotConstantError, evaluate
from jax_graphenc.signature.layouts import Enum, Layout
from jax_graphenc.signature.resolve import Aliases, parse_type
from jax_graphenc.signature.tree import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_Found = TypeVar("_Found")
Scope = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrittenEnum:
    """An enumeration as written."""

    base: str | None
    enumerators: tuple[tuple[str, int], ...]
    scope: Scope


@dataclass(frozen=True, slots=True)
class Declared:
    """What a source declares, by qualified name."""

    aliases: Aliases = field(default_factory=Aliases)
    constants: dict[str, Any] = field(default_factory=dict)
    enums: dict[str, WrittenEnum] = field(default_factory=dict)

    def value(self, text: str, scope: Scope) -> Any:
        """The value of a constant expression that is written in a scope.

        Raises:
          NotConstantError: for one that is not evaluated here.
        """
        return evaluate(text, lambda name: find(self.constants, name, scope))

    def layout(self, spelling: str, scope: Scope) -> Layout | None:
        """The layout of a by-value type that is written in a scope; ``None`` if it has none."""
        if enum := find(self.enums, spelling, scope):
            underlying = self.aliases.resolve(parse_type(enum.base or "int"), enum.scope, {}).base
            return Enum(spelling, underlying, enum.enumerators)
        return None

    # ------------------------------------------------------------------ from the tree

    def add_constant(self, node: Node, scope: Scope) -> None:
        """Adds a variable that is a constant integer, of a declaration."""
        words = {text_of(child) for child in node.children}
        if not words & {"constexpr", "const"}:
            return
        for declarator in node.children_by_field_name("declarator"):
            name = declarator.child_by_field_name("declarator")
            value = declarator.child_by_field_name("value")
            if name is None or value is None or name.type not in ("identifier", "field_identifier"):
                continue
            try:
                self.constants["::".join((*scope, text_of(name)))] = self.value(
                    text_of(value), scope
                )
            except NotConstantError:
                continue

    def add_enum(self, node: Node, scope: Scope) -> None:
        """Adds an enumeration with its enumerators, of its specifier."""
        scoped = any(text_of(child) in ("class", "struct") for child in node.children)
        name = text_of(node.child_by_field_name("name"))
        inner = (*scope, name) if name else scope
        body = node.child_by_field_name("body")
        values: dict[str, int] = {}
        following: int | None = 0
        for child in body.named_children if body else ():
            if child.type != "enumerator":
                continue
            written = child.child_by_field_name("value")
            if written is not None:
                try:
                    following = int(self.value(text_of(written), inner))
                except (TypeError, NotConstantError):
                    following = None
            if following is None:
                continue
            enumerator = text_of(child.child_by_field_name("name"))
            values[enumerator] = following
            self.constants["::".join((*inner, enumerator))] = following
            if not scoped:
                self.constants["::".join((*scope, enumerator))] = following
            following += 1
        base = text_of(node.child_by_field_name("base")) or None
        if base is None and not scoped:
            base = _underlying(values)
        enum = WrittenEnum(base, tuple(values.items()), scope)
        for known in {name, _typedef_name(node)} - {""}:
            self.enums["::".join((*scope, known))] = enum


def _underlying(values: Mapping[str, int]) -> str:
    """What compilers choose for an enumeration that does not say."""
    least, most = min((0, *values.values())), max((0, *values.values()))
    if least >= 0:
        return "unsigned int" if most < 2**32 else "unsigned long"
    return "int" if least >= -(2**31) and most < 2**31 else "long"


def _typedef_name(node: Node) -> str:
    parent = node.parent
    if parent is None or parent.type != "type_definition":
        return ""
    declarator = parent.child_by_field_name("declarator")
    return text_of(declarator) if declarator and declarator.type == "type_identifier" else ""


def find(table: Mapping[str, _Found], path: str, scope: Scope) -> _Found | None:
    """What a name means that is written in a scope: the innermost of that name."""
    if path.startswith("::"):
        path, scope = path[2:], ()
    for depth in range(len(scope), -1, -1):
        found = table.get("::".join((*scope[:depth], path)))
        if found is not None:
            return found
    return None

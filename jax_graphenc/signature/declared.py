"""The enumerations, structs and constants that a source declares."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from jax_graphenc.signature.constants import NotConstantError, evaluate
from jax_graphenc.signature.declarators import array_sizes, before, declared_by
from jax_graphenc.signature.layouts import Enum, Layout, Opaque, Pointer, Struct, lay_out, vector
from jax_graphenc.signature.resolve import (
    Aliases,
    TypeId,
    parse_type,
    split_template,
    substitute,
)
from jax_graphenc.signature.tree import text_of
from jax_graphenc.signature.types import canonical, dtype_of

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
class WrittenMember:
    """A member of a struct as written."""

    name: str
    type: TypeId
    sizes: tuple[str, ...]  # of an array, the outermost first


@dataclass(frozen=True, slots=True)
class WrittenStruct:
    """A struct as written."""

    members: tuple[WrittenMember, ...]
    template: tuple[str, ...]  # names of its template parameters
    alignment: str  # that it asks for, or ""
    inner: Scope  # the scope of its members
    problem: str | None  # why its layout is not known


class _UnknownLayout(Exception):
    """Why only the compiler knows a layout."""


_MAX_DEPTH = 32
_PACKED = re.compile(rb"#[ \t]*pragma[ \t]+pack\b")
_ATTRIBUTE = re.compile(
    rb"\b(?:alignas|__align__|__builtin_align__)\s*\((?P<align>[^()]*)\)"
    rb"|\b(?:alignas|__align__|__builtin_align__|__attribute__|__declspec)\b"
)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a source declares, by qualified name."""

    aliases: Aliases = field(default_factory=Aliases)
    constants: dict[str, Any] = field(default_factory=dict)
    enums: dict[str, WrittenEnum] = field(default_factory=dict)
    structs: dict[str, WrittenStruct] = field(default_factory=dict)

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
            if dtype_of(underlying) is None:
                return Opaque(spelling, f"its underlying type is {underlying}")
            return Enum(spelling, underlying, enum.enumerators)
        try:
            struct = self._struct(spelling, scope)
            return self._laid_out(spelling, *struct) if struct else vector(spelling)
        except _UnknownLayout as error:
            return Opaque(spelling, str(error))

    def _struct(self, spelling: str, scope: Scope) -> tuple[WrittenStruct, dict[str, str]] | None:
        """A struct, and the text that each of its template parameters stands for."""
        if exact := find(self.structs, spelling, scope):
            return exact, {}
        path, arguments = split_template(spelling)
        struct = find(self.structs, path, scope)
        if struct is None:
            return None
        if any(name.startswith(f"{'::'.join(struct.inner)}<") for name in self.structs):
            raise _UnknownLayout("it has specializations")
        return struct, dict(zip(struct.template, arguments or (), strict=False))

    def _laid_out(
        self, name: str, struct: WrittenStruct, bindings: Mapping[str, str], depth: int = 0
    ) -> Struct:
        if struct.problem or depth > _MAX_DEPTH:
            raise _UnknownLayout(struct.problem or "it is nested too deep")
        members = [self._member(member, struct, bindings, depth) for member in struct.members]
        alignment = self._count(struct.alignment, struct, bindings) if struct.alignment else 1
        if alignment & (alignment - 1):
            raise _UnknownLayout(f"its alignment is {alignment}")
        return lay_out(name, members, alignment)

    def _member(
        self, member: WrittenMember, struct: WrittenStruct, bindings: Mapping[str, str], depth: int
    ) -> tuple[str, str, np.dtype[Any] | Enum | Struct | Pointer, tuple[int, ...]]:
        where = f"its member '{member.name}'"
        kind = self.aliases.resolve(member.type, struct.inner, bindings)
        if kind.levels in (("*",), ("*const",)):
            return kind.base, member.name, Pointer(kind.base, kind.const), ()
        if any(level != "[]" for level in kind.levels):
            raise _UnknownLayout(f"{where} is of type {kind}")
        if len(kind.levels) != len(member.sizes):
            raise _UnknownLayout(f"the type of {where} is an array")
        shape = tuple(self._count(size, struct, bindings) for size in member.sizes)
        of = dtype_of(kind.base) or self._element(kind.base, struct, depth)
        if of is None or isinstance(of, Opaque):
            because = f", of which {of.why}" if of else ", which the source does not declare"
            raise _UnknownLayout(f"{where} is of type {kind.base}{because}")
        if shape and isinstance(of, Struct) and any(of.pointers()):
            raise _UnknownLayout(f"{where} is an array of structs with pointers")
        return kind.base, member.name, of, shape

    def _element(self, spelling: str, struct: WrittenStruct, depth: int) -> Layout | None:
        inner = self._struct(spelling, struct.inner)
        if inner is None:
            return self.layout(spelling, struct.inner)
        return self._laid_out(spelling, *inner, depth + 1)

    def _count(self, text: str, struct: WrittenStruct, bindings: Mapping[str, str]) -> int:
        try:
            value = self.value(substitute(text, bindings), struct.inner)
        except NotConstantError:
            value = None
        if not isinstance(value, int) or value < 1:
            raise _UnknownLayout(f"{text or 'the size of an array'} is no constant that is known")
        return int(value)

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
        for known in _names_of(node):
            self.enums["::".join((*scope, known))] = enum

    def add_struct(
        self, node: Node, scope: Scope, template: tuple[str, ...], source: bytes
    ) -> None:
        """Adds a struct, of its specifier; ``source`` has the attributes that the tree lacks."""
        names = _names_of(node)
        inner = (*scope, names[0])
        members: list[WrittenMember] = []
        alignment, problem = _attributes(node, source)
        if _PACKED.search(source):
            problem = "the source has #pragma pack"
        if any(child.type == "base_class_clause" for child in node.children):
            problem = "it has a base class"
        body = node.child_by_field_name("body")
        for child in body.named_children if body else ():
            try:
                members += _members(child)
            except _UnknownLayout as error:
                problem = problem or str(error)
        struct = WrittenStruct(tuple(members), template, alignment, inner, problem)
        for known in names:
            self.structs["::".join((*scope, known))] = struct


def _underlying(values: Mapping[str, int]) -> str:
    """What compilers choose for an enumeration that does not say."""
    least, most = min((0, *values.values())), max((0, *values.values()))
    if least >= 0:
        return "unsigned int" if most < 2**32 else "unsigned long"
    return "int" if least >= -(2**31) and most < 2**31 else "long"


def _names_of(node: Node) -> list[str]:
    """The names of an enumeration or a struct: its own, and that of its typedef."""
    names = [canonical(text_of(node.child_by_field_name("name")))]
    parent = node.parent
    if parent is not None and parent.type == "type_definition":
        declarator = parent.child_by_field_name("declarator")
        if declarator and declarator.type == "type_identifier":
            names.append(text_of(declarator))
    return [name for name in names if name] or [_nameless(node)]


def _nameless(node: Node) -> str:
    return f"unnamed_{node.start_byte}"


def _attributes(node: Node, source: bytes) -> tuple[str, str | None]:
    """The alignment that a struct asks for, and what of its attributes is not understood."""
    body = node.child_by_field_name("body")
    assert body is not None
    ends = source.find(b";", node.end_byte)
    head = source[node.start_byte : body.start_byte]
    tail = source[node.end_byte : ends if ends >= 0 else len(source)]
    alignment = ""
    for match in _ATTRIBUTE.finditer(head + b" " + tail.partition(b"{")[0]):
        if match["align"] is None:
            return "", f"it has {match[0].decode()}"
        alignment = match["align"].decode()
    if of_member := _ATTRIBUTE.search(source, body.start_byte, body.end_byte):
        return alignment, f"a member has {of_member[0].decode()}"
    return alignment, None


def _members(node: Node) -> Iterator[WrittenMember]:
    """The members that take room, of a declaration in a struct's body."""
    text = text_of(node)
    if text.startswith("virtual"):
        raise _UnknownLayout("it has virtual functions")
    if node.is_error or node.has_error:
        raise _UnknownLayout(f"`{' '.join(text.split())[:40]}` cannot be read")
    if node.type != "field_declaration":
        return
    if any(text_of(child) == "static" for child in node.children):
        return
    kind = node.child_by_field_name("type")
    declarators = node.children_by_field_name("declarator")
    has_body = kind is not None and kind.child_by_field_name("body") is not None
    if kind is not None and kind.type == "union_specifier":
        raise _UnknownLayout("it has a union")
    if any(child.type == "bitfield_clause" for child in node.children):
        raise _UnknownLayout("it has bit-fields")
    if kind is not None and not declarators and has_body and not kind.child_by_field_name("name"):
        if kind.type == "enum_specifier":
            return
        raise _UnknownLayout("it has an unnamed struct without a member's name")
    for declarator in declarators:
        name, levels = declared_by(declarator)
        if levels[-1:] == ("()",) and declarator.type == "function_declarator":
            continue
        base = before(node, declarators[0])
        if kind is not None and has_body:
            base = text_of(kind.child_by_field_name("name")) or _nameless(kind)
        member = parse_type(re.sub(r"\b(?:mutable|constexpr)\b", "", base))
        yield WrittenMember(name, member.around(levels, const=False), array_sizes(declarator))


def find(table: Mapping[str, _Found], path: str, scope: Scope) -> _Found | None:
    """What a name means that is written in a scope: the innermost of that name.

    Or the only one of that name anywhere, since directives and aliases bring in other scopes.
    """
    if path.startswith("::"):
        path, scope = path[2:], ()
    for depth in range(len(scope), -1, -1):
        found = table.get("::".join((*scope[:depth], path)))
        if found is not None:
            return found
    others = [known for name, known in table.items() if name.endswith(f"::{path}")]
    return others[0] if len(others) == 1 else None

"""The layout of a struct that a source declares, for messages about by-value parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jax_graphenc.signature.tree import root_of, text_of
from jax_graphenc.signature.types import element_of

if TYPE_CHECKING:
    from tree_sitter import Node


def layout_of(source: str, name: str) -> str | None:
    """The numpy dtype of a struct of arithmetic members, as Python spells it; else ``None``."""
    last = name.rpartition("::")[2].strip()
    for node in _structs(root_of(source.encode())):
        body = node.child_by_field_name("body")
        if body is None or last != _name_of(node):
            continue
        members = [m for member in body.named_children for m in _members(member)]
        if members and None not in members:
            return f"np.dtype([{', '.join(map(str, members))}], align=True)"
    return None


def _structs(root: Node) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type == "struct_specifier":
            yield node
        pending += node.named_children


def _name_of(struct: Node) -> str:
    """Its own name, or that of its typedef."""
    parent = struct.parent
    if parent is not None and parent.type == "type_definition":
        return text_of(parent.child_by_field_name("declarator"))
    return text_of(struct.child_by_field_name("name"))


def _members(node: Node) -> list[tuple[str, str] | None]:
    """Name and dtype of what a member declaration declares; ``None`` for what has no dtype."""
    if node.type == "comment":
        return []
    element = element_of(text_of(node.child_by_field_name("type")))
    names = node.children_by_field_name("declarator")
    plain = all(n.type == "field_identifier" for n in names)
    if node.type != "field_declaration" or element is None or element[1] > 1 or not plain:
        return [None]
    return [(text_of(name), element[0].name) for name in names]

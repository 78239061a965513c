"""Declarations taken apart: what stands before a declarator, and what it declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jax_graphenc.signature.tree import text_of

if TYPE_CHECKING:
    from tree_sitter import Node


def before(node: Node, declarator: Node | None, skip: str = "") -> str:
    """The text of a declaration's type: all that stands before its declarator."""
    end = declarator.start_byte if declarator else node.end_byte
    return " ".join(
        text_of(child)
        for child in node.children
        if child.end_byte <= end
        and child.type not in (skip, ";", "attribute_declaration", "attribute_specifier")
    )


def declared_by(node: Node | None) -> tuple[str, tuple[str, ...]]:
    """The name that a declarator declares, or "", and its levels from the base outwards."""
    levels: list[str] = []
    while node is not None:
        kind = node.type.removeprefix("abstract_")
        if kind == "pointer_declarator":
            constant = any(text_of(c) == "const" for c in node.children)
            levels.append("*const" if constant else "*")
        elif kind == "array_declarator":
            levels.append("[]")
        elif kind == "reference_declarator":
            levels.append("&&" if any(c.type == "&&" for c in node.children) else "&")
        elif kind == "function_declarator":
            levels.append("()")
        elif kind == "variadic_declarator":
            levels.append("...")
        elif kind not in ("parenthesized_declarator", "attributed_declarator"):
            return text_of(node), tuple(levels)
        node = inside(node)
    return "", tuple(levels)


def inside(node: Node) -> Node | None:
    """The declarator inside a declarator."""
    return node.child_by_field_name("declarator") or next(
        (c for c in node.named_children if c.type.endswith(("declarator", "identifier"))), None
    )


def array_sizes(node: Node | None) -> tuple[str, ...]:
    """The sizes of the arrays that a declarator declares, the outermost first."""
    sizes: list[str] = []
    while node is not None:
        if node.type == "array_declarator":
            sizes.insert(0, text_of(node.child_by_field_name("size")))
        node = inside(node)
    return tuple(sizes)

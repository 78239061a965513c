"""Syntax trees of CUDA C++, from tree-sitter's grammar."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Query


def captured(code: bytes) -> dict[str, list[Node]]:
    """What a source declares, by kind: function (its declarator), alias, enum, struct, variable."""
    from tree_sitter import QueryCursor

    return QueryCursor(_query()).captures(root_of(code))


def root_of(code: bytes) -> Node:
    """The syntax tree of a source."""
    from tree_sitter import Parser

    return Parser(_language()).parse(code).root_node


def declarations(code: bytes) -> list[Node]:
    """The declarations of variables in a source, at any depth."""
    from tree_sitter import Parser, Query, QueryCursor

    query = Query(_language(), "(declaration) @declaration")
    tree = Parser(_language()).parse(code)
    return QueryCursor(query).captures(tree.root_node).get("declaration", [])


@cache
def _language() -> Language:
    # Imported late: a process that only loads images needs no grammar.
    import tree_sitter_cuda
    from tree_sitter import Language

    return Language(tree_sitter_cuda.language())


@cache
def _query() -> Query:
    from tree_sitter import Query

    return Query(
        _language(),
        "(function_declarator parameters: (parameter_list)) @function "
        "[(alias_declaration) (type_definition) (using_declaration)] @alias "
        "(enum_specifier body: (enumerator_list)) @enum "
        "[(struct_specifier body: (_)) (class_specifier body: (_))] @struct "
        "(declaration declarator: (init_declarator)) @variable",
    )


def text_of(node: Node | None) -> str:
    """The source text of a node."""
    return node.text.decode("utf-8", "replace") if node and node.text else ""


def enclosing(node: Node, *kinds: str) -> Node | None:
    """The nearest ancestor of one of these kinds."""
    parent = node.parent
    while parent is not None and parent.type not in kinds:
        parent = parent.parent
    return parent

"""Declarations of shared memory, rewritten for a compiler that knows none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from jax_graphenc.signature.preprocess import blank
from jax_graphenc.signature.tree import declarations, enclosing, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

SHARED_PREFIX = "jge_shared_"
"""What shared variables are called where they are references; include/host/jge_check.h drops it."""

# Most sources have nothing to rewrite, and need no parser.
_WORTH_A_LOOK = re.compile(
    r"\b(?:extern|static)\b[^;{}]*\b__shared__\b|\b__shared__[^;{}]*\b(?:extern|static)\b"
)


# A macro that may stand for a part of such a declaration, with its continued lines.
_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_WORD = re.compile(r"\b(?:extern|static|__shared__)\b")


def hides_shared(text: str, others: Iterable[str]) -> bool:
    """Whether macros or other texts may hold declarations that `rewrite_shared` must see.

    Args:
        text: CUDA C++.
        others: The macros given from outside and the user's files that it includes.
    """
    texts = (text, *others)
    words = {word for each in texts for word in _WORD.findall(each)}
    if "__shared__" not in words or len(words) == 1:
        return False
    macros = (macro for each in texts for macro in _MACRO.findall(each))
    return any(map(_WORTH_A_LOOK.search, texts[1:])) or any(map(_WORD.search, macros))


def rewrite_shared(text: str, checked: bool = False) -> str:
    """Makes pointers of `extern __shared__ T s[];` (include/host/jge_shared.h).

    Every other line stays as it is, and every line where it is. `static` before `__shared__`, which
    says nothing, goes: the CPU's `__shared__` is a storage class itself. Declarations in macros and
    included files are seen once the source is preprocessed.

    Args:
        text: CUDA C++.
        checked: Make other shared variables references whose place the compiler does not see: it
            checks no access of which it knows that it is in bounds.
    """
    if not _WORTH_A_LOOK.search(text) and not (checked and "__shared__" in text):
        return text
    code = text.encode()
    edits: list[tuple[int, int, str]] = []
    for node in declarations(blank(code)):
        words = [text_of(child) for child in node.children]
        if "__shared__" not in words:
            continue
        if "extern" in words:
            edits.append((node.start_byte, node.end_byte, _pointers(node)))
        elif checked and enclosing(node, "compound_statement") is not None:
            edits += _references(node)
        for child in node.children:
            if text_of(child) == "static":
                edits.append((child.start_byte, child.end_byte, ""))
    for start, end, new in sorted(edits, reverse=True):
        code = code[:start] + new.encode() + b"\n" * code[start:end].count(b"\n") + code[end:]
    return code.decode()


def _pointers(declaration: Node) -> str:
    """What stands for a declaration of dynamic shared memory: one pointer per declarator."""
    qualifiers = [
        text_of(child)
        for child in declaration.children
        if child.type == "type_qualifier" and text_of(child) in ("const", "volatile")
    ]
    base = " ".join((*qualifiers, text_of(declaration.child_by_field_name("type"))))
    inside = enclosing(declaration, "compound_statement") is not None
    result = []
    for declarator in declaration.children_by_field_name("declarator"):
        # Of T s[][4] the elements are T[4].
        name, _, dimensions = text_of(declarator).partition("[")
        name, element = name.strip(), base + dimensions.partition("]")[2]
        pointer = f"::jge_dynamic_shared<{element}>()"
        if inside:
            result.append(f"auto* const {name} = {pointer};")
        else:
            result.append(
                f"static thread_local std::add_pointer_t<{element}> {name}; "
                f"static const jge::Dynamic jge_{name}([] {{ {name} = {pointer}; }});"
            )
    return " ".join(result)


def _references(declaration: Node) -> list[tuple[int, int, str]]:
    """Edits that give the variables of a declaration other names, and references theirs."""
    edits = []
    references = []
    for declarator in declaration.children_by_field_name("declarator"):
        name: Node | None = declarator
        while name is not None and name.type != "identifier":
            name = name.child_by_field_name("declarator")
        if name is None:
            return []
        edits.append((name.start_byte, name.start_byte, SHARED_PREFIX))
        shown = text_of(name)
        references.append(f" auto& {shown} = ::jge::opaque({SHARED_PREFIX}{shown});")
    edits.append((declaration.end_byte, declaration.end_byte, "".join(references)))
    return edits

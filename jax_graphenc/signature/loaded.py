"""Kernels that load some of their by-value parameters from memory, made from the user's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jax_graphenc.signature.preprocess import blank
from jax_graphenc.signature.resolve import split_template
from jax_graphenc.signature.tree import captured, enclosing, text_of
from jax_graphenc.signature.types import canonical

if TYPE_CHECKING:
    from tree_sitter import Node


def loaded_name(expression: str, types: Mapping[str, str]) -> str:
    """What the kernel that loads these parameters is called: ``f<float>``, ``f_loads_a<float>``."""
    head, bracket, rest = expression.partition("<")
    return f"{head.strip()}_loads_{'_'.join(types)}{bracket}{rest}"


def loaded_parameter(name: str) -> str:
    """What the pointer to a parameter's value is called."""
    return f"{name}_at"


def with_loaded_values(source: str, expression: str, types: Mapping[str, str], line: int) -> str:
    """Adds to a source a copy of a kernel that takes pointers to some of its by-value parameters.

    Behind ``void f(T* x, float a) { BODY }`` it puts
    ``void f_loads_a(T* x, const float* a_at) { float a = (float)*a_at; BODY }``: the value comes
    from memory, and the body stays as it is.

    Args:
        source: CUDA C++ text.
        expression: the kernel, as ``parse_signature`` takes it.
        types: the parameters, and the C++ type in which each is in memory; C++ converts it.
        line: of the source's first line in its file. Errors in the copy name the kernel's lines.

    Raises:
        ValueError: if the kernel's definition does not stand in the source as it is.
    """
    code = source.encode()
    path, _ = split_template(canonical(expression).removeprefix("::"))
    added: list[tuple[Node, bytes]] = []
    # Attributes that the grammar does not know are blanked out; places stay the same.
    for declarator in sorted(captured(blank(code)).get("function", ()), key=lambda n: n.start_byte):
        definition = enclosing(declarator, "function_definition")
        name = declarator.child_by_field_name("declarator")
        if definition is None or name is None:
            continue
        head = code[definition.start_byte : declarator.start_byte]
        named, _ = split_template(canonical(text_of(name)))
        if named.rpartition("::")[2] != path.rpartition("::")[2] or b"__global__" not in head:
            continue
        whole = definition
        while whole.parent is not None and (
            whole.parent.type == "template_declaration" or _is_linkage(whole.parent)
        ):
            whole = whole.parent
        added.append((whole, _copy(code, whole, definition, declarator, types)))
    if not added:
        raise ValueError("its definition does not stand in the source itself")
    for whole, copy in reversed(added):
        begins, ends = whole.start_point[0] + line, whole.end_point[0] + line
        behind = b"\n#line %d\n%s\n#line %d\n" % (begins, copy, ends)
        code = code[: whole.end_byte] + behind + code[whole.end_byte :]
    return code.decode()


def _is_linkage(node: Node) -> bool:
    """Whether a node is ``extern "C"`` in front of one declaration."""
    body = node.child_by_field_name("body")
    return (
        node.type == "linkage_specification"
        and body is not None
        and body.type != "declaration_list"
    )


def _copy(
    code: bytes, whole: Node, definition: Node, declarator: Node, types: Mapping[str, str]
) -> bytes:
    name = declarator.child_by_field_name("declarator")
    parameters = declarator.child_by_field_name("parameters")
    body = definition.child_by_field_name("body")
    assert name is not None
    assert parameters is not None
    if body is None or body.type != "compound_statement":
        raise ValueError("its body could not be read")
    edits: list[tuple[int, int, bytes]] = [
        (name.start_byte, name.end_byte, loaded_name(text_of(name), types).encode())
    ]
    loads = b""
    for parameter, stored in types.items():
        node = next((p for p in parameters.named_children if _names(p) == parameter), None)
        if node is None:
            raise ValueError(f"its parameter '{parameter}' could not be read")
        inner = node.child_by_field_name("declarator")
        assert inner is not None
        kind = re.sub(rb"\bconst\b", b"", code[node.start_byte : inner.start_byte]).strip()
        pointer = loaded_parameter(parameter)
        declared = f"const {stored}* {pointer}".encode()
        edits.append((node.start_byte, node.end_byte, declared))
        # No integer becomes an enumeration unless it is told to.
        loads += b" %s %s = (%s)*%s;" % (kind, parameter.encode(), kind, pointer.encode())
    # A pointer has no default, so neither may those in front of it.
    for node in parameters.named_children:
        inner = node.child_by_field_name("declarator")
        if node.type == "optional_parameter_declaration" and _names(node) not in types and inner:
            edits.append((inner.end_byte, node.end_byte, b""))
    edits.append((body.start_byte + 1, body.start_byte + 1, loads))
    out, at = b"", whole.start_byte
    for start, end, text in sorted(edits):
        out += code[at:start] + text
        at = end
    return out + code[at : whole.end_byte]


def _names(parameter: Node) -> str | None:
    declarator = parameter.child_by_field_name("declarator")
    kinds = ("parameter_declaration", "optional_parameter_declaration")
    if parameter.type not in kinds or declarator is None:
        return None
    return text_of(declarator) if declarator.type == "identifier" else None

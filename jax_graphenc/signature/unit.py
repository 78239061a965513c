"""The kernels, types and constants that a source declares, as written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from jax_graphenc.signature.declarators import before, declared_by
from jax_graphenc.signature.declared import Declared
from jax_graphenc.signature.preprocess import blank, preprocess
from jax_graphenc.signature.resolve import Alias, Aliases, TypeId, parse_type, split_template
from jax_graphenc.signature.tree import captured, enclosing, text_of
from jax_graphenc.signature.types import canonical
from jax_graphenc.signature.written import (
    TemplateParameter,
    Unit,
    WrittenKernel,
    WrittenParameter,
)

if TYPE_CHECKING:
    from tree_sitter import Node


@lru_cache(maxsize=64)
def read_unit(
    source: str, defines: tuple[tuple[str, str], ...], filename: str, first_line: int
) -> Unit:
    """Reads all of a source; cached, as one source often holds many kernels."""
    text = source.removeprefix("\ufeff")
    try:
        text, lines = preprocess(text, dict(defines))
        lines = [line + first_line - 1 for line in lines]
    except Exception as error:  # pcpp lets its own exceptions out on odd input
        raise ValueError(f"{filename}: cannot be preprocessed: {error!r}") from error
    code = blank(text.encode("utf-8", "replace"))
    captures = captured(code)
    declared = Declared()
    aliases = declared.aliases
    for node in captures.get("alias", ()):
        if enclosing(node, "compound_statement") is None:
            aliases.by_name.update(_aliases(node))
    attributed = blank(text.encode("utf-8", "replace"), ("comment",))
    types = [node for kind in ("variable", "enum", "struct") for node in captures.get(kind, ())]
    for node in sorted(types, key=lambda node: node.start_byte):
        if enclosing(node, "compound_statement") is not None:
            continue
        context = _context(node)
        if node.type == "enum_specifier":
            declared.add_enum(node, context.scope)
        elif node.type == "declaration":
            declared.add_constant(node, context.scope)
        else:
            template = tuple(p.name for p in _template_parameters(context.template))
            declared.add_struct(node, context.scope, template, attributed)
    kernels = [
        kernel
        for node in sorted(captures.get("function", ()), key=lambda node: node.start_byte)
        if (kernel := _kernel(node, code, lines))
    ]
    return Unit(_merged(kernels, aliases), declared)


@dataclass(frozen=True, slots=True)
class _Context:
    """What surrounds a declaration."""

    scope: tuple[str, ...]  # named namespaces and classes, outermost first
    full_scope: tuple[str, ...]  # the same with inline namespaces
    template: Node | None  # the innermost template's parameter list
    extern_c: bool


def _context(node: Node) -> _Context:
    scope: list[str] = []
    full: list[str] = []
    template, extern_c = None, False
    parent = node.parent
    while parent is not None:
        if parent.type in ("namespace_definition", "struct_specifier", "class_specifier"):
            parts = canonical(text_of(parent.child_by_field_name("name"))).split("::")
            parts = [part for part in reversed(parts) if part]
            full += parts
            if not any(child.type == "inline" for child in parent.children):
                scope += parts
        elif parent.type == "linkage_specification":
            extern_c |= text_of(parent.child_by_field_name("value")) == '"C"'
        elif parent.type == "template_declaration" and template is None:
            template = parent.child_by_field_name("parameters")
        parent = parent.parent
    return _Context(tuple(reversed(scope)), tuple(reversed(full)), template, extern_c)


def _aliases(node: Node) -> Iterator[tuple[str, Alias]]:
    """The aliases that a declaration makes, by qualified name."""
    context = _context(node)
    declared: list[tuple[str, TypeId]] = []
    if node.type == "using_declaration":
        path = canonical(text_of(node).removeprefix("using").rstrip("; "))
        if "::" in path and not path.startswith(("namespace ", "enum ")):
            declared.append((path.rpartition("::")[2], TypeId(path)))
    elif node.type == "alias_declaration":
        name = text_of(node.child_by_field_name("name"))
        declared.append((name, parse_type(text_of(node.child_by_field_name("type")))))
    else:
        kind = node.child_by_field_name("type")
        declarators = node.children_by_field_name("declarator")
        if kind and kind.child_by_field_name("body") is None and declarators:
            base = parse_type(before(node, declarators[0], skip="typedef"))
            for declarator in declarators:
                name, levels = declared_by(declarator)
                declared.append((name, base.around(levels, const=False)))
    parameters = tuple(p.name for p in _template_parameters(context.template))
    for name, type_id in declared:
        if name:
            alias = Alias(type_id, context.scope, parameters)
            yield "::".join((*context.scope, name)), alias


def _kernel(declarator: Node, code: bytes, lines: list[int]) -> WrittenKernel | None:
    """The kernel that a function declarator belongs to, if it does."""
    top = enclosing(
        declarator,
        *("function_definition", "declaration", "field_declaration"),
        *("template_instantiation", "parameter_declaration", "ERROR"),
    )
    if top is None or not top.type.endswith(("definition", "declaration")):
        return None
    if top.type == "parameter_declaration":
        return None
    if not re.search(rb"\b__global__\b", code[top.start_byte : declarator.start_byte]):
        return None
    name = declarator.child_by_field_name("declarator")
    parameters = declarator.child_by_field_name("parameters")
    if name is None or parameters is None:
        return None
    context = _context(top)
    path, specialization = split_template(canonical(text_of(name)))
    *inner, last = path.removeprefix("::").split("::")
    scope = (*context.scope, *inner)
    names = {"::".join((*scope, last)), "::".join((*context.full_scope, *inner, last))}
    if context.extern_c:
        names.add(last)
    children = [c for c in parameters.children if c.is_named or c.type == "..."]
    return WrittenKernel(
        name="::".join((*scope, last)),
        names=frozenset(names),
        scope=scope,
        line=lines[name.start_point[0]],
        parameters=tuple(_parameters(children, lines)),
        template=_template_parameters(context.template),
        specialization=specialization,
        extern_c=context.extern_c,
        is_definition=top.type == "function_definition",
        error=_syntax_error(top, declarator, parameters, last, lines),
    )


def _parameters(nodes: list[Node], lines: list[int]) -> Iterator[WrittenParameter]:
    for node in nodes:
        declarator = node.child_by_field_name("declarator")
        name, levels = declared_by(declarator)
        base = parse_type(before(node, declarator))
        if node.type not in ("parameter_declaration", "optional_parameter_declaration"):
            levels = levels if "..." in levels else (*levels, "...")
        type_id = base.around(levels, const=False)
        if type_id == TypeId("void") and not name and len(nodes) == 1:
            return
        default = text_of(node.child_by_field_name("default_value")).strip() or None
        yield WrittenParameter(name, type_id, lines[node.start_point[0]], default)


def _template_parameters(node: Node | None) -> tuple[TemplateParameter, ...]:
    parameters = []
    for child in node.named_children if node else ():
        head, _, default = text_of(child).partition("=")
        declarator = child.child_by_field_name("declarator")
        if (
            "declaration" in child.type
            and "type_parameter" not in child.type
            and (child.type != "template_template_parameter_declaration")
        ):
            name = declared_by(declarator)[0]
        else:
            words = re.findall(r"\w+", head.rpartition(">")[2])
            name = words[1] if len(words) > 1 else ""
        pack = "..." in head
        parameters.append(TemplateParameter(name, canonical(default) or None, pack))
    return tuple(parameters)


def _syntax_error(
    top: Node, declarator: Node, parameters: Node, name: str, lines: list[int]
) -> str | None:
    """What is wrong, after its line, if the grammar stumbled before the parameters' end."""
    bad = next(_errors(parameters), None) or next(
        (
            child
            for parent in (top, declarator)
            for child in parent.children
            if (child.is_error or child.is_missing) and child.start_byte < parameters.end_byte
        ),
        None,
    )
    if bad is None:
        return None
    near = " ".join(f"{text_of(bad.prev_named_sibling)} {text_of(bad)}".split())[-60:]
    return (
        f"{lines[bad.start_point[0]]}: cannot read the signature of `{name}` near `{near}`: "
        "if that is a macro of a header, give its value in defines="
    )


def _errors(node: Node) -> Iterator[Node]:
    pending = [node]
    while pending:
        node = pending.pop()
        if node.is_error or node.is_missing:
            yield node
        elif node.has_error and node.type != "compound_literal_expression":  # as in `P p = {}`
            pending += reversed(node.children)


def _merged(kernels: list[WrittenKernel], aliases: Aliases) -> tuple[WrittenKernel, ...]:
    """One kernel for each function: its definition if there is one, else its declaration."""
    merged: dict[object, WrittenKernel] = {}
    for kernel in kernels:
        places = {p.name: f"${i}" for i, p in enumerate(kernel.template) if p.name}
        types = tuple(
            aliases.resolve(p.type, kernel.scope, places).decayed() for p in kernel.parameters
        )
        key = (kernel.name, types, len(kernel.template), kernel.specialization, kernel.error)
        first = merged.get(key, kernel)
        kept = kernel if kernel.is_definition else first
        template = tuple(  # defaults may stand on either
            replace(p, default=p.default or q.default or r.default)
            for p, q, r in zip(kept.template, first.template, kernel.template, strict=True)
        )
        parameters = tuple(
            replace(p, default=p.default or q.default or r.default)
            for p, q, r in zip(kept.parameters, first.parameters, kernel.parameters, strict=True)
        )
        merged[key] = replace(
            kept,
            template=template,
            parameters=parameters,
            extern_c=first.extern_c or kernel.extern_c,
        )
    return tuple(sorted(merged.values(), key=lambda kernel: kernel.line))

"""Signatures of `__global__` functions, with their macros, aliases and templates resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from jax_graphenc.signature.preprocess import blank, preprocess
from jax_graphenc.signature.resolve import (
    Alias,
    Aliases,
    TypeId,
    parse_type,
    split_template,
    substitute,
)
from jax_graphenc.signature.tree import captured, enclosing, text_of
from jax_graphenc.signature.types import canonical

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
      name: its name in the source.
      type: what a pointer points to, or the type of a value, without qualifiers.
      role: `in` for a pointer to const, `out` for another pointer, `value` for the rest.
      const: whether what a pointer points to is const; False for a value.
      pointer: whether it is a pointer.
    """

    name: str
    type: str
    role: Literal["in", "out", "value"]
    const: bool
    pointer: bool

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


def parse_signature(
    source: str,
    name: str,
    *,
    defines: Mapping[str, str] = {},
    filename: str = "<source>",
    line: int = 1,
) -> Signature:
    """Reads the signature of one kernel from CUDA C++ source.

    Macros, conditions, type aliases and template parameters of the source are resolved. Headers
    are not read: a type that one of them declares stays as spelled, and is a value unless the
    source shows a `*`.

    Args:
      source: CUDA C++ text.
      name: a function, `f` or `ns::f`, or a template instance, `f<float, 4>`. Template arguments
        are put in as text: `f<{x}>` gives parameters of type `{x}`.
      defines: macros, as the compiler's `-D` options give them.
      filename: what messages call the source.
      line: the line of the source's first line in that file.

    Raises:
      ValueError: if the kernel is not there, is ambiguous or cannot be read, or if the template
        arguments do not fit.
      TypeError: if a parameter is neither a value nor a pointer to values.
    """
    unit = _read(source, tuple(sorted(defines.items())), filename, line)
    path, arguments = split_template(canonical(name).removeprefix("::"))
    found = [kernel for kernel in unit.kernels if path in kernel.names]
    if not found:
        raise ValueError(_not_found(unit, name.strip(), path, source, filename))
    kernels = [k for k in found if k.is_template == (arguments is not None)]
    # A specialization has its template's signature, so it matters only where that is elsewhere.
    kernels = [k for k in kernels if k.specialization is None] or [
        k for k in kernels if k.specialization == arguments
    ]
    if not kernels:
        raise ValueError(_no_such_instance(found, path, arguments, filename))
    for kernel in kernels:
        if kernel.error:
            raise ValueError(f"{filename}:{kernel.error}")
    if len(kernels) > 1:
        listing = "; ".join(f"line {k.line}: {_signature(k, unit)}" for k in kernels)
        raise ValueError(
            f"{filename}: `{path}` is overloaded ({listing}): give each kernel a name of its own"
        )
    kernel = kernels[0]
    bindings = _bind(kernel, arguments or (), f"{filename}:{kernel.line}: `{name.strip()}`")
    for parameter in kernel.parameters:
        type_id = unit.aliases.resolve(parameter.type, kernel.scope, bindings)
        if problem := _problem(parameter, type_id):
            raise TypeError(
                f"{filename}:{parameter.line}: `{path}` takes {problem}. Or describe all of its "
                "parameters by params="
            )
    return _signature(kernel, unit, name.strip(), bindings)


def list_kernels(
    source: str,
    *,
    defines: Mapping[str, str] = {},
    filename: str = "<source>",
    line: int = 1,
) -> tuple[Signature, ...]:
    """The kernels that a source declares, in its order.

    Templates come unbound. A parameter that `parse_signature` would refuse is given as a value of
    the type as written. Kernels whose parameters cannot be read are left out.

    Args:
      source: CUDA C++ text.
      defines: macros, as the compiler's `-D` options give them.
      filename: what messages call the source.
      line: the line of the source's first line in that file.

    Raises:
      ValueError: if the source cannot be preprocessed.
    """
    unit = _read(source, tuple(sorted(defines.items())), filename, line)
    return tuple(_signature(kernel, unit) for kernel in unit.kernels if not kernel.error)


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    type: TypeId  # as written
    line: int


@dataclass(frozen=True, slots=True)
class _TemplateParameter:
    name: str
    default: str | None
    pack: bool


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A `__global__` function as written."""

    name: str  # qualified, without anonymous and inline namespaces
    names: frozenset[str]  # all that it answers to
    scope: tuple[str, ...]
    line: int
    parameters: tuple[_Parameter, ...]
    template: tuple[_TemplateParameter, ...]
    specialization: tuple[str, ...] | None  # arguments of an explicit specialization
    extern_c: bool
    is_definition: bool
    error: str | None  # "LINE: what is wrong" where the grammar could not read it

    @property
    def is_template(self) -> bool:
        return bool(self.template) or self.specialization is not None

    @property
    def title(self) -> str:
        """The name with its template parameters, or the arguments it is specialized for."""
        arguments = self.specialization or tuple(p.name or "..." for p in self.template)
        return f"{self.name}<{', '.join(arguments)}>" if self.is_template else self.name


@dataclass(frozen=True, slots=True)
class _Unit:
    """What one source declares."""

    kernels: tuple[_Kernel, ...]
    aliases: Aliases


@lru_cache(maxsize=64)
def _read(
    source: str, defines: tuple[tuple[str, str], ...], filename: str, first_line: int
) -> _Unit:
    """Reads all of a source; cached, as one source often holds many kernels."""
    text = source.removeprefix("\ufeff")
    try:
        text, lines = preprocess(text, dict(defines))
        lines = [line + first_line - 1 for line in lines]
    except Exception as error:  # pcpp lets its own exceptions out on odd input
        raise ValueError(f"{filename}: cannot be preprocessed: {error!r}") from error
    code = blank(text.encode("utf-8", "replace"))
    captures = captured(code)
    aliases = Aliases()
    for node in captures.get("alias", ()):
        if enclosing(node, "compound_statement") is None:
            aliases.by_name.update(_aliases(node))
    kernels = [
        kernel
        for node in sorted(captures.get("function", ()), key=lambda node: node.start_byte)
        if (kernel := _kernel(node, code, lines))
    ]
    return _Unit(_merged(kernels, aliases), aliases)


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
            base = parse_type(_before(node, declarators[0], skip="typedef"))
            for declarator in declarators:
                name, levels = _declarator(declarator)
                declared.append((name, base.around(levels, const=False)))
    parameters = tuple(p.name for p in _template_parameters(context.template))
    for name, type_id in declared:
        if name:
            alias = Alias(type_id, context.scope, parameters)
            yield "::".join((*context.scope, name)), alias


def _kernel(declarator: Node, code: bytes, lines: list[int]) -> _Kernel | None:
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
    return _Kernel(
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


def _parameters(nodes: list[Node], lines: list[int]) -> Iterator[_Parameter]:
    for node in nodes:
        declarator = node.child_by_field_name("declarator")
        name, levels = _declarator(declarator)
        base = parse_type(_before(node, declarator))
        if node.type not in ("parameter_declaration", "optional_parameter_declaration"):
            levels = levels if "..." in levels else (*levels, "...")
        type_id = base.around(levels, const=False)
        if type_id == TypeId("void") and not name and len(nodes) == 1:
            return
        yield _Parameter(name, type_id, lines[node.start_point[0]])


def _before(node: Node, declarator: Node | None, skip: str = "") -> str:
    """The text of a declaration's type: all that stands before its declarator."""
    end = declarator.start_byte if declarator else node.end_byte
    return " ".join(
        text_of(child)
        for child in node.children
        if child.end_byte <= end
        and child.type not in (skip, ";", "attribute_declaration", "attribute_specifier")
    )


def _declarator(node: Node | None) -> tuple[str, tuple[str, ...]]:
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
        node = node.child_by_field_name("declarator") or next(
            (c for c in node.named_children if c.type.endswith(("declarator", "identifier"))), None
        )
    return "", tuple(levels)


def _template_parameters(node: Node | None) -> tuple[_TemplateParameter, ...]:
    parameters = []
    for child in node.named_children if node else ():
        head, _, default = text_of(child).partition("=")
        declarator = child.child_by_field_name("declarator")
        if (
            "declaration" in child.type
            and "type_parameter" not in child.type
            and (child.type != "template_template_parameter_declaration")
        ):
            name = _declarator(declarator)[0]
        else:
            words = re.findall(r"\w+", head.rpartition(">")[2])
            name = words[1] if len(words) > 1 else ""
        pack = "..." in head
        parameters.append(_TemplateParameter(name, canonical(default) or None, pack))
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
        elif node.has_error:
            pending += reversed(node.children)


def _merged(kernels: list[_Kernel], aliases: Aliases) -> tuple[_Kernel, ...]:
    """One kernel for each function: its definition if there is one, else its declaration."""
    merged: dict[object, _Kernel] = {}
    for kernel in kernels:
        places = {p.name: f"${i}" for i, p in enumerate(kernel.template) if p.name}
        types = tuple(
            aliases.resolve(p.type, kernel.scope, places).decayed() for p in kernel.parameters
        )
        key = (kernel.name, types, len(kernel.template), kernel.specialization, kernel.error)
        first = merged.get(key, kernel)
        kept = kernel if kernel.is_definition else first
        template = tuple(  # the defaults of template parameters may stand on either
            replace(p, default=p.default or q.default or r.default)
            for p, q, r in zip(kept.template, first.template, kernel.template, strict=True)
        )
        merged[key] = replace(kept, template=template, extern_c=first.extern_c or kernel.extern_c)
    return tuple(sorted(merged.values(), key=lambda kernel: kernel.line))


def _bind(kernel: _Kernel, arguments: tuple[str, ...], where: str) -> dict[str, str]:
    """The text that each template parameter of a kernel stands for."""
    if kernel.specialization is not None:
        return {}
    if len(arguments) > len(kernel.template) and not any(p.pack for p in kernel.template):
        raise ValueError(
            f"{where}: {len(arguments)} template arguments for {kernel.title}, which takes "
            f"{len(kernel.template)}"
        )
    bindings: dict[str, str] = {}
    for i, parameter in enumerate(kernel.template):
        if parameter.pack:
            break
        if i < len(arguments):
            value = arguments[i]
        elif parameter.default is not None:
            value = substitute(parameter.default, bindings)
        else:
            raise ValueError(
                f"{where}: no template argument for `{parameter.name or i}` of {kernel.title}, "
                "which has no default"
            )
        if parameter.name:
            bindings[parameter.name] = value
    return bindings


def _signature(
    kernel: _Kernel, unit: _Unit, name: str | None = None, bindings: Mapping[str, str] = {}
) -> Signature:
    parameters = []
    for parameter in kernel.parameters:
        type_id = unit.aliases.resolve(parameter.type, kernel.scope, bindings)
        if type_id.is_pointer:
            role: Literal["in", "out"] = "in" if type_id.const else "out"
            resolved = Parameter(parameter.name, type_id.base, role, type_id.const, True)
        else:
            spelling = type_id.decayed()
            resolved = Parameter(parameter.name, spelling, "value", False, False)
        parameters.append(resolved)
    return Signature(
        name or kernel.name,
        tuple(parameters),
        kernel.line,
        tuple(p.name for p in kernel.template),
        kernel.extern_c,
    )


def _problem(parameter: _Parameter, type_id: TypeId) -> str | None:
    """What is wrong with a parameter, and what to write instead; None if all is well."""
    name, base, levels = parameter.name or "x", type_id.base, type_id.levels
    pointer = f"`{'const ' * type_id.const}{base}* {name}`"
    this = f"`{name}`"
    if "..." in levels:
        return f"a parameter pack, {this}: write the parameters one by one"
    if not parameter.name:
        return f"a parameter without a name, of type `{type_id}`: give it a name"
    if "()" in levels:
        return f"a function, {this}: make it a template argument or a `__device__` function"
    if "&" in levels or "&&" in levels:
        return f"a reference, {this}: write `{base} {name}` for a value, {pointer} for an array"
    if len(levels) > 1 and "[]" in levels:
        return f"an array of arrays, {this}: write {pointer} and compute the index"
    if len(levels) > 1:
        return f"a pointer to pointers, {this}: write {pointer}, one array with an offset"
    if not levels and base in ("auto", "decltype(auto)"):
        return f"a parameter of type `auto`, {this}: write its type, or a template"
    return None


def _not_found(unit: _Unit, name: str, path: str, source: str, filename: str) -> str:
    last = path.rpartition("::")[2]
    there = ", ".join(f"{kernel.title} (line {kernel.line})" for kernel in unit.kernels)
    message = f"{filename}: no __global__ function `{name}`; it has {there or 'none at all'}"
    if near := [k.name for k in unit.kernels if k.name.rpartition("::")[2] == last]:
        return f"{message}. Did you mean `{near[0]}`?"
    if seen := re.search(rf"\b{re.escape(last)}\s*\(", source) if last else None:
        line = source.count("\n", 0, seen.start()) + 1
        message += (
            f". Line {line} has `{last}(`, but not as a __global__ function that this reads: "
            "look at its #if conditions and defines=, at macros from headers, and at the syntax"
        )
    elif re.search(r"^\s*#\s*include\b", source, re.MULTILINE):
        message += (
            ". Included files are not looked into: for a kernel in one of them, give params= in "
            "full, such as {'x': 'const float*', 'out': 'float*', 'n': 'int'}"
        )
    return message


def _no_such_instance(
    found: list[_Kernel], path: str, arguments: tuple[str, ...] | None, filename: str
) -> str:
    kernel = next((k for k in found if k.is_template), found[0])
    where = f"{filename}:{kernel.line}: `{path}`"
    if not kernel.is_template:
        return f"{where} is not a template: leave `<{', '.join(arguments or ())}>` out"
    if kernel.specialization is not None:
        have = ", ".join(f"{path}<{', '.join(k.specialization or ())}>" for k in found)
        return f"{where} is known here only by its specializations: {have}"
    return (
        f"{where} is a template: name an instance, {kernel.title} with arguments put in, such as "
        "float, 32, or {x} for the type of input x"
    )

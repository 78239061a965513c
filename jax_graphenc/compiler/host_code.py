"""Host code in a source of kernels, left out for compilers of device code.

What is left out are bodies: of functions without `__device__` or `__global__`, of blocks such as
PYBIND11_MODULE, and of global variables whose initial value is computed at run time. Types,
declarations, constants and functions that return `auto` stay, and so does each line where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jax_graphenc.signature.preprocess import blank
from jax_graphenc.signature.tree import root_of, text_of

if TYPE_CHECKING:
    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a text that was left out, or that may be host code and was kept.

    Attributes:
        name: What it is: `"main"`, `"Queue::push"`, `"PYBIND11_MODULE"`.
        line: Its line in the text, from 1.
        kept: Why it was kept; empty if it was left out.
    """

    name: str
    line: int
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text without its host code, and the parts that it differs in."""

    text: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Macros:
    """What the macros of a source mean for functions that they stand before.

    Attributes:
        device: Macros that make device functions or kernels, such as `HOST_DEVICE`.
        specifiers: Macros that stand for words such as `inline`, or for nothing.
        names: All macros.
        functions: Functions that are declared as device functions, wherever they are defined.
    """

    device: frozenset[str]
    specifiers: frozenset[str]
    names: frozenset[str]
    functions: frozenset[str]


_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?P<arguments>\([^)\n]*\))?"
    r"(?P<body>(?:[^\n\\]|\\\r?\n|\\)*)",
    re.MULTILINE,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_DEVICE = {"__device__", "__global__"}
# A macro of a header that is not the user's is known by its name.
_NAMED_DEVICE = re.compile(r"\b[A-Z_]*(?:DEVICE|GLOBAL|KERNEL|HD)[A-Z_]*\b|\b__cudart_builtin__\b")
_SPECIFIERS = {
    *("inline", "static", "extern", "const", "constexpr", "noexcept", "virtual", "friend"),
    *("__host__", "__device__", "__global__", "__forceinline__", "__inline__", "__noinline__"),
    *("__inline", "__restrict__", "__attribute__", "always_inline", "__always_inline__", "unused"),
    *("visibility", "noinline", "__declspec", "dllexport", "dllimport", "maybe_unused"),
}
_ANNOTATED = re.compile(r"\b__(?:device|global|constant|shared|managed)__\b")
_ANNOTATED_NAME = re.compile(r"\b__(?:device|global)__\b[^;{}()=]*?([A-Za-z_]\w*)\s*\(")


def read_macros(texts: Iterable[str]) -> Macros:
    """Reads what the macros in a source and in the files that it includes stand for."""
    bodies: dict[str, list[str]] = {}
    called: dict[str, bool] = {}
    functions: set[str] = set()
    for text in texts:
        for match in _DEFINE.finditer(text):
            body = re.sub(r"//[^\n]*|/\*.*?\*/|\\\r?\n|\"[^\"\n]*\"", " ", match["body"])
            bodies.setdefault(match["name"], []).append(body)
            called[match["name"]] = match["arguments"] is not None
        functions.update(_ANNOTATED_NAME.findall(text))
    device: set[str] = set()
    objects = {name for name, is_called in called.items() if not is_called}
    while True:
        more = {
            name
            for name, all_ in bodies.items()
            if name not in device
            and any(not _DEVICE.union(device).isdisjoint(_WORD.findall(body)) for body in all_)
        }
        if not more:
            break
        device |= more
    specifiers: set[str] = set()
    while True:
        more = {
            name
            for name in objects - specifiers
            if all(
                _SPECIFIERS.union(specifiers).issuperset(_WORD.findall(body))
                and not re.search(r"[^\s\w()]", body)
                and not re.search(r"\d", body)
                for body in bodies[name]
            )
        }
        if not more:
            break
        specifiers |= more
    return Macros(*map(frozenset, (device, specifiers, bodies, functions)))


# What a device function has no use for. A method that has none of it may be one, and is kept.
_HOST_ONLY = re.compile(
    r"<<\s*<|\b(?:cuda|cublas|cusparse|cusolver|cufft|curand|cudnn|nvtx|nvml|nccl)[A-Z]\w*\s*\("
    r"|\b(?:throw|try|catch|new|delete|assert_cuda)\b"
    r"|\bstd::(?!min\b|max\b|numeric_limits|is_|abs|fabs|move|forward|enable_if|size_t|u?int|swap)"
    r"|\b(?:thrust|at|torch|c10|py|pybind11|ffi)::"
    r"|\b(?:cout|cerr|fprintf|fopen|fread|fwrite|fclose|exit|getenv|snprintf|sprintf|strcmp)\b"
    r"|(?:\.|->)\s*(?:size|push_back|emplace_back|resize|begin|end|c_str|data_ptr|clear|reserve)\b"
    r"|\b(?:TORCH_|AT_|C10_|CHECK_|CUDA_CHECK|CHECK_CUDA|CUDA_SAFE_CALL|checkCudaErrors)\w*"
)
# Directives of a body that was left out still count for what follows it.
_KEPT_DIRECTIVE = re.compile(
    rb"^[ \t]*#[ \t]*(?:define|undef|if|ifdef|ifndef|elif|else|endif)\b(?:[^\n\\]|\\\r?\n|\\)*",
    re.MULTILINE,
)
_CONDITION = re.compile(rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b", re.MULTILINE)
_NOT_CODE = re.compile(
    rb"//[^\n]*|/\*.*?\*/|R\"(?P<raw>[^\s()\\\"]{0,16})\(.*?\)(?P=raw)\""
    rb"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'|[{}]",
    re.DOTALL,
)


@dataclass(slots=True)
class _Edit:
    start: int
    end: int
    new: bytes


def leave_out_host_code(text: str, macros: Macros) -> Rewritten:
    """Leaves the host code of a text out, line by line where it was.

    Args:
        text: CUDA C++, not preprocessed.
        macros: What the macros of all its files mean.
    """
    code = text.encode("utf-8", "surrogateescape")
    edits: list[_Edit] = []
    parts: list[Part] = []
    plain = _without_specifiers(_with_launches(blank(code)), macros)
    for node in _outer_nodes(root_of(plain)):
        if node.type == "function_definition":
            found = _function(node, code, macros)
        elif node.type == "template_instantiation":
            found = _instantiation(node, code, macros)
        elif node.type == "declaration":
            found = _variable(node, code, macros)
        else:
            found = _statement(node, code, macros)
        if found is not None:
            part, more = found
            parts.append(part)
            edits += more
    out = bytearray(code)
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        out[edit.start : edit.end] = edit.new
    return Rewritten(out.decode("utf-8", "surrogateescape"), tuple(parts))


def _with_launches(code: bytes) -> bytes:
    """Launches as the grammar knows them: without spaces in `<< <` and `>> >`."""
    code = re.sub(rb"<<[ \t]+<(?!<)|<[ \t]+<<(?!<)", _joined, code)
    return re.sub(rb">>[ \t]+>(?=\s*\()|>[ \t]+>>(?=\s*\()", _joined, code)


def _joined(match: re.Match[bytes]) -> bytes:
    return match[0].replace(b" ", b"").replace(b"\t", b"").rjust(len(match[0]))


def _without_specifiers(code: bytes, macros: Macros) -> bytes:
    """Macros that stand for words such as `inline` as spaces: the grammar takes them for types."""
    names = {name.encode() for name in macros.specifiers}

    def spaces(match: re.Match[bytes]) -> bytes:
        return b" " * len(match[0]) if match[0] in names else match[0]

    return re.sub(rb"[A-Za-z_]\w*", spaces, code) if names else code


_OUTER = {
    *("translation_unit", "namespace_definition", "declaration_list", "linkage_specification"),
    *("template_declaration", "class_specifier", "struct_specifier", "field_declaration_list"),
    *("friend_declaration", "union_specifier", "declaration", "field_declaration", "ERROR"),
    *("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "type_definition"),
    *("preproc_elifdef",),
}
_LOOKED_AT = {"function_definition", "template_instantiation", "declaration"}


def _outer_nodes(root: Node) -> Iterator[Node]:
    """The functions, instantiations, variables and macro calls of a text that stand in no body."""
    pending = [root]
    while pending:
        node = pending.pop()
        outer = node.parent is None or node.parent.type in _OUTER - {
            *("field_declaration_list", "class_specifier", "struct_specifier", "ERROR"),
        }
        is_statement = node.type == "expression_statement" and outer
        if node.type in _LOOKED_AT or is_statement:
            yield node
        if node.type in _OUTER:
            pending += reversed(node.children)


def _function(node: Node, code: bytes, macros: Macros) -> tuple[Part, list[_Edit]] | None:
    """A function whose body is left out, or why it is kept; None for one of the device."""
    declarator: Node | None = node
    while declarator is not None and declarator.type != "function_declarator":
        declarator = declarator.child_by_field_name("declarator") or next(
            (child for child in declarator.named_children if "declarator" in child.type), None
        )
    if declarator is None:
        return None
    body = next(
        (c for c in node.children if c.type in ("compound_statement", "try_statement")), None
    )
    name = text_of(declarator.child_by_field_name("declarator"))
    last = re.sub(r"<.*", "", name, flags=re.DOTALL).rpartition("::")[2].strip()
    if body is None or not last:
        return None
    head = code[node.start_byte : body.start_byte].decode("utf-8", "replace")
    if _is_device(head, macros) or re.search(r"\b(?:constexpr|consteval)\b", head):
        return None
    if last in macros.device or last in macros.functions:
        return None
    before = head[: declarator.start_byte - node.start_byte]
    if re.search(r"\bauto\b", before) and "->" not in head:
        return None
    line = node.start_point[0] + 1
    inside = code[body.start_byte : body.end_byte]
    is_method = "::" in name or _in_class(node)
    if is_method and not _HOST_ONLY.search(inside.decode("utf-8", "replace")):
        return None
    if _wrong(node, body):
        return Part(name, line, "its declaration could not be read"), []
    end = _closing(code, body.start_byte)
    if body.type != "try_statement" and end != body.end_byte:
        return Part(name, line, "where it ends could not be told"), []
    if not _balanced(inside):
        return Part(name, line, "its conditions (#if) reach beyond it"), []
    typeless = node.child_by_field_name("type") is None and "operator" not in name
    if "::" in name:
        # A declaration outside of its class is an error.
        whole = node
        while whole.parent is not None and whole.parent.type == "template_declaration":
            whole = whole.parent
        return Part(name, line), [_spaces(code, whole.start_byte, body.end_byte)]
    if not is_method and (typeless or name == "main"):
        return Part(name, line), [_spaces(code, node.start_byte, body.end_byte)]
    edit = _spaces(code, body.start_byte, body.end_byte)
    if re.search(r"\b(?:virtual|override|final)\b", head):
        # It is in a table of functions, and so must be there.
        edit.new = b"{__trap();}" + edit.new[11:] if len(edit.new) > 11 else b"{__trap();}"
    else:
        initializers = next((c for c in node.children if c.type == "field_initializer_list"), None)
        if initializers is not None:
            edit = _spaces(code, initializers.start_byte, body.end_byte)
        edit.new = b";" + edit.new[1:]
    return Part(name, line), [edit]


def _is_device(head: str, macros: Macros) -> bool:
    return bool(
        _ANNOTATED.search(head)
        or _NAMED_DEVICE.search(head)
        or not macros.device.isdisjoint(_WORD.findall(head))
    )


def _in_class(node: Node) -> bool:
    """Whether a function is a method that is defined in its class."""
    parent = node.parent
    while parent is not None and parent.type != "field_declaration_list":
        if parent.type == "friend_declaration":
            return False
        parent = parent.parent
    return parent is not None


def _wrong(node: Node, body: Node) -> bool:
    """Whether the grammar stumbled before a function's body."""
    return any(
        child.is_missing or child.has_error
        for child in node.children
        if child.start_byte < body.start_byte
    )


def _closing(code: bytes, start: int) -> int | None:
    """The position after the brace that closes the one at `start`."""
    depth = 0
    for match in _NOT_CODE.finditer(code, start):
        depth += {b"{": 1, b"}": -1}.get(match[0], 0)
        if depth == 0:
            return match.end() if match[0] == b"}" else None
    return None


def _balanced(inside: bytes) -> bool:
    """Whether each #if of a body ends in it, and each #else and #endif belongs to one in it."""
    depth = 0
    for match in _CONDITION.finditer(inside):
        depth += 1 if match[1].startswith(b"if") else -(match[1] == b"endif")
        if depth < 0 or (depth == 0 and match[1].startswith(b"el")):
            return False
    return depth == 0


def _spaces(code: bytes, start: int, end: int) -> _Edit:
    """An edit that leaves a range out, except for its lines and the directives that still count."""
    old = code[start:end]
    new = bytearray(re.sub(rb"[^\n]", b" ", old))
    for match in _KEPT_DIRECTIVE.finditer(old):
        new[match.start() : match.end()] = match[0]
    return _Edit(start, end, bytes(new))


def _instantiation(node: Node, code: bytes, macros: Macros) -> tuple[Part, list[_Edit]] | None:
    """An explicit instantiation of a host function, which has no body any more."""
    written = code[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if _is_device(written, macros) or (node.has_error and "(" not in written):
        return None
    name = re.search(r"[\w:]+(?=\s*<)", written)
    if "(" not in written or name is None:
        return None
    if name[0].rpartition("::")[2] in macros.functions:
        return None
    return (
        Part(f"template {name[0]}", node.start_point[0] + 1),
        [_spaces(code, node.start_byte, node.end_byte)],
    )


def _variable(node: Node, code: bytes, macros: Macros) -> tuple[Part, list[_Edit]] | None:
    """A global variable of the host whose initial value is computed when a program starts."""
    if _in_class(node) or node.has_error:
        return None
    written = code[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if re.match(r"(?:[\w:]+\s+)*?(?:const|constexpr|extern|typedef|using)\b", written):
        return None
    declared = [c for c in node.children if c.type == "init_declarator"]
    computed = [c for c in declared if _is_computed(c, node)]
    if not computed or _is_device(written[: computed[0].start_byte - node.start_byte], macros):
        return None
    kind = text_of(node.child_by_field_name("type"))
    name = text_of(computed[0].child_by_field_name("declarator"))
    part = Part(name, node.start_point[0] + 1)
    if kind == "auto" or len(computed) != len(node.children_by_field_name("declarator")):
        return part, [_spaces(code, node.start_byte, node.end_byte)]
    edits = []
    for each in computed:
        declarator = each.child_by_field_name("declarator")
        assert declarator is not None
        edits.append(_spaces(code, declarator.end_byte, each.end_byte))
    storage = next((c for c in node.children if c.type == "storage_class_specifier"), None)
    if storage is not None:
        edits.append(_Edit(storage.start_byte, storage.end_byte, b"extern"))
    else:
        edits.append(_Edit(node.start_byte, node.start_byte, b"extern "))
    return part, edits


def _is_computed(declarator: Node, declaration: Node) -> bool:
    """Whether a variable's initial value calls a function or a constructor."""
    value = declarator.child_by_field_name("value")
    kind = declaration.child_by_field_name("type")
    if value is None or kind is None:
        return False
    simple = kind.type in ("primitive_type", "sized_type_specifier")
    if value.type in ("argument_list", "initializer_list") and not simple:
        return kind.type in ("qualified_identifier", "type_identifier", "template_type") and (
            value.type == "argument_list" or kind.type == "qualified_identifier"
        )
    pending = [value]
    while pending:
        node = pending.pop()
        if node.type in ("call_expression", "lambda_expression", "new_expression"):
            return True
        pending += node.children
    return False


def _statement(node: Node, code: bytes, macros: Macros) -> tuple[Part, list[_Edit]] | None:
    """A call outside of any function, of a macro that a header of the host would define."""
    called = node.named_children[0] if node.named_children else None
    if called is None or called.type != "call_expression" or node.has_error:
        return None
    name = text_of(called.child_by_field_name("function"))
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name) or name in macros.names:
        return None
    return (
        Part(name, node.start_point[0] + 1),
        [_spaces(code, node.start_byte, node.end_byte)],
    )

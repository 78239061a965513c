"""Initial values of a source's `__constant__` and `__device__` variables, written into it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jax_graphenc.signature.literals import WRITABLE, literal_of
from jax_graphenc.signature.preprocess import blank
from jax_graphenc.signature.tree import enclosing, root_of, text_of
from jax_graphenc.signature.types import element_of

if TYPE_CHECKING:
    from tree_sitter import Node

_QUALIFIER = re.compile(rb"\b__(?:constant|device|managed)__\b")
_ORDER = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3, "V": 4}


@dataclass(frozen=True, slots=True)
class _Variable:
    """A declarator: its names, C++ type, dimensions as written, and what an initializer replaces.

    Attributes:
        start, end: bytes where ``= value`` goes.
        behind: byte behind the declaration, where an assertion may stand.
    """

    name: str
    qualified: str
    type: str
    dimensions: tuple[str, ...]
    start: int
    end: int
    behind: int


def with_globals(source: str, values: Mapping[str, Any], where: str) -> str:
    """The source with initializers for some of its variables, each on the variable's own line.

    An initializer is part of the text, and so of all that is made from it: images, keys of caches,
    exported programs. Floats are written in hexadecimal and keep every bit.

    Args:
        source: CUDA C++ text.
        values: by name, bare or qualified: a number, an array, or a structured scalar or array.
        where: what messages call the source.

    Raises:
        ValueError: if there is no such variable, or it has another shape.
        TypeError: if its type cannot hold the value.
    """
    if not values:
        return source
    code = source.encode()
    variables = list(_variables(code))
    edits: list[tuple[int, int, bytes]] = []
    for name, value in values.items():
        found = [v for v in variables if name in (v.name, v.qualified)]
        if not found:
            there = ", ".join(dict.fromkeys(v.qualified for v in variables)) or "none"
            raise ValueError(
                f"globals= names {name!r}, which {where} does not declare as a __constant__ or "
                f"__device__ variable; those are: {there}. Included files are not looked into"
            )
        if len({v.qualified for v in found}) > 1:
            names = ", ".join(v.qualified for v in found)
            raise ValueError(f"globals= names {name!r}, which is one of {names}: write which")
        for variable in found:  # more than one under #if and #else
            array = _array(variable, value)
            written, check = _initializer(variable, array)
            edits.append((variable.start, variable.end, f" = {written}".encode()))
            edits.append((variable.behind, variable.behind, check.encode()))
    out, at = b"", 0
    for start, end, text in sorted(edits, key=lambda edit: edit[:2]):
        out += code[at:start] + text
        # What is replaced keeps its lines.
        out += b"\n" * code[start:end].count(b"\n")
        at = end
    return (out + code[at:]).decode()


def _variables(code: bytes) -> Iterator[_Variable]:
    pending = [root_of(blank(code))]
    while pending:
        node = pending.pop()
        if node.type != "declaration":
            if node.type not in ("compound_statement", "template_declaration"):
                pending.extend(reversed(node.named_children))
            continue
        declarators = node.children_by_field_name("declarator")
        if not declarators or not _QUALIFIER.search(
            code[node.start_byte : declarators[0].start_byte]
        ):
            continue
        kind = text_of(node.child_by_field_name("type"))
        for declarator in declarators:
            inner: Node | None = declarator
            if declarator.type == "init_declarator":
                inner = declarator.child_by_field_name("declarator")
            assert inner is not None
            end = inner.end_byte
            dimensions: list[str] = []
            while inner is not None and inner.type == "array_declarator":
                dimensions.insert(0, text_of(inner.child_by_field_name("size")))
                inner = inner.child_by_field_name("declarator")
            if inner is None or inner.type not in ("identifier", "pointer_declarator"):
                continue
            pointer = inner.type == "pointer_declarator"
            name = text_of(inner).lstrip("*& ")
            yield _Variable(
                name,
                "::".join((*_scope(node), name)),
                f"{kind}*" if pointer else kind,
                tuple(dimensions),
                end,
                declarator.end_byte,
                node.end_byte,
            )


def _scope(node: Node) -> list[str]:
    names: list[str] = []
    outer = enclosing(node, "namespace_definition")
    while outer is not None:
        if name := text_of(outer.child_by_field_name("name")):
            names.insert(0, name)
        outer = enclosing(outer, "namespace_definition")
    return names


def _array(variable: _Variable, value: Any) -> np.ndarray[Any, Any]:
    """The value in the variable's type, as far as that is known.

    Raises:
        TypeError, ValueError: if it does not fit.
    """
    what = f"globals={{{variable.name!r}: ...}}"
    declared = "".join(
        (f"{variable.type} {variable.name}", *(f"[{n}]" for n in variable.dimensions))
    )
    if variable.type.endswith("*"):
        raise TypeError(f"{what}: `{declared}` is a pointer; pass such an array as an input")
    try:
        array = np.asarray(value)
    except Exception as error:
        # A traced value refuses in JAX's own way, at length.
        why = "it is traced" if "traced" in str(error) else str(error)
        raise TypeError(
            f"{what}: a number or an array that is known is expected, since it becomes part of the "
            f"image; {why}. Pass what changes as an input"
        ) from None
    element = element_of(variable.type)
    dimensions = variable.dimensions
    if element is not None and element[1] > 1:
        dimensions = (*dimensions, str(element[1]))
    differs = any(
        known.isdecimal() and int(known) != given
        for known, given in zip(dimensions, array.shape, strict=False)
    )
    if array.ndim != len(dimensions) or differs:
        raise ValueError(f"{what}: `{declared}` cannot hold an array of shape {array.shape}")
    if array.dtype.kind not in _ORDER:
        raise TypeError(f"{what}: {array.dtype} is no dtype that can be written; {WRITABLE} can be")
    if element is None:
        return array
    dtype = element[0]
    if _rank(array.dtype) > _rank(dtype):
        raise TypeError(f"{what}: `{declared}` holds {dtype}; got {array.dtype}: convert it")
    if dtype.kind in "iu" and array.size:
        info = np.iinfo(dtype)
        if int(array.min()) < info.min or int(array.max()) > info.max:
            raise TypeError(f"{what}: `{declared}` holds {info.min} to {info.max}")
    with np.errstate(over="ignore"):
        converted = array.astype(dtype)
    if dtype.kind in "fcV" and not np.array_equal(_finite(array), _finite(converted)):
        raise TypeError(f"{what}: a value is out of the range of {dtype}")
    return converted


def _finite(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    known = array if array.dtype.kind != "V" else array.astype(np.float32)
    finite: np.ndarray[Any, Any] = np.isfinite(known)
    return finite


def _rank(dtype: np.dtype[Any]) -> int:
    """Order of kinds: what is lower converts without loss of meaning."""
    return 2 if dtype.kind == "V" and dtype.names is None else _ORDER[dtype.kind]


def _initializer(variable: _Variable, array: np.ndarray[Any, Any]) -> tuple[str, str]:
    """The value in C++, and an assertion that it is as many elements as the variable has.

    C++ fills what is missing with zeros, which would hide a wrong size.
    """
    written = literal_of(array)
    rank = len(variable.dimensions)
    if not rank:
        return written, ""
    element = variable.name + "[0]" * rank
    count = math.prod(array.shape[:rank])
    return written, (
        f" static_assert(sizeof({variable.name}) == {count} * sizeof({element}), "
        f'"globals= gives {variable.name} an array of shape {array.shape}");'
    )

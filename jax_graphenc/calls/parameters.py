"""A kernel's parameters: from its C++ signature, and from what the user says in ``params=``."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from jax_graphenc.base.errors import telling
from jax_graphenc.compiler.includes import find_includes
from jax_graphenc.compiler.source import Source
from jax_graphenc.signature.layouts import Layout, Struct, vector
from jax_graphenc.signature.parse import layout_of, parse_signature
from jax_graphenc.signature.signature import Default
from jax_graphenc.signature.signature import Parameter as Written
from jax_graphenc.signature.types import element_of

Role = Literal["in", "out", "inout", "scratch", "value", "null"]
"""What a kernel does with a parameter; ``null`` is an input that a call leaves out."""

_ROLES: dict[str, Role] = {
    "in": "in",
    "out": "out",
    "inout": "inout",
    "scratch": "scratch",
    "value": "value",
}
_QUALIFIERS = frozenset({"const", "volatile", "restrict", "__restrict__", "__restrict"})


@dataclass(frozen=True, slots=True)
class Member:
    """Where a pointer is that is no parameter itself: in a struct that is passed by value.

    Attributes:
        of: the struct's parameter.
        offset: in the struct, in bytes.
    """

    of: str
    offset: int


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: its name, what the kernel does with it, and its C++ type.

    ``type`` is that of the element for a pointer and of the value otherwise; ``layout`` is what the
    source says of a value's, and ``default`` its default argument there. A pointer in a struct that
    is passed by value is one of its own, ``p.x``, with ``member``, behind the struct's.
    """

    name: str
    role: Role
    type: str
    layout: Layout | None = None
    default: Default | None = None
    member: Member | None = None

    @property
    def is_input(self) -> bool:
        """Whether it takes an array of the caller's."""
        return self.role in ("in", "inout")

    @property
    def is_keyword(self) -> bool:
        """Whether it takes a value of the caller's, as all do but structs of pointers alone."""
        return self.role == "value" and not (
            isinstance(self.layout, Struct) and not self.layout.data
        )

    @property
    def is_optional(self) -> bool:
        """Whether it is an input that is a null pointer where a call does not give it."""
        return self.role == "in" and self.default is not None and self.default.known

    @property
    def python_name(self) -> str:
        """What functions of shapes call it: ``p_x`` for the member ``p.x``."""
        return self.name.replace(".", "_")

    def __str__(self) -> str:
        const = "const " if self.role in ("in", "null") else ""
        return f"{const}{self.type}{' ' if self.role == 'value' else '* '}{self.name}"


def spell(expression: str, parameters: Sequence[Parameter]) -> str:
    """A kernel as C++ declares it."""
    return f"{expression}({', '.join(str(p) for p in parameters if p.member is None)})"


def check_params(params: Mapping[str, str] | None) -> dict[str, str]:
    """``params=`` as a dict.

    Raises:
        TypeError: if it is not a mapping of strings.
    """
    if not isinstance(params or {}, Mapping):
        raise TypeError(
            f"params={params!r}: a mapping is expected, such as {{'u': 'inout'}}; got "
            f"{type(params).__name__}"
        )
    for name, text in (params or {}).items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(
                f"params={{{name!r}: {text!r}}}: a parameter's name and a string are expected, "
                "such as {'u': 'inout'} or {'x': 'const float*'}"
            )
    return dict(params or {})


def declared(name: str, text: str) -> Parameter:
    """A parameter from what ``params=`` says of it, such as ``"inout float*"``.

    Raises:
        ValueError: for what is no C++ type.
    """
    first, _, rest = text.strip().partition(" ")
    role = _ROLES.get(first)
    words = (rest if role else text).replace("*", " * ").split()
    pointer = "*" in words
    base = " ".join(word for word in words if word != "*" and word not in _QUALIFIERS)
    if role is None:
        # A const before the star is the element's, one behind it the pointer's own.
        const = pointer and "const" in words[: words.index("*")]
        role = ("in" if const else "out") if pointer else "value"
    if not base or words.count("*") > 1 or pointer == (role == "value"):
        raise ValueError(
            f"params={{{name!r}: {text!r}}}: a C++ type is expected, a value or a pointer to one, "
            "such as 'const float*', 'inout float*' or 'int'"
        )
    return Parameter(name, role, base, None if pointer else vector(base))


def _declared_in(source: Source | None, name: str, text: str) -> Parameter:
    """The same, with the layout of a type that the source declares."""
    parameter = declared(name, text)
    if source is None or parameter.role != "value":
        return parameter
    layout = layout_of(
        source.text,
        parameter.type,
        defines=dict(source.defines),
        filename=source.filename,
        line=source.line,
    )
    return replace(parameter, layout=layout)


def describe(
    source: Source | None, expression: str, params: Mapping[str, str]
) -> tuple[Parameter, ...]:
    """A kernel's parameters.

    Args:
        source: where its signature is; ``None`` for an image, which has none.
        expression: the kernel: ``f``, ``ns::f`` or ``f<float>``.
        params: what the user says of them, by name: all of it where there is no signature.

    Raises:
        ValueError: if there is no such kernel, or no such parameter.
        TypeError: if a parameter is neither a value nor a pointer to values.
    """
    in_full = bool(params) and not any(text.strip() in _ROLES for text in params.values())
    found = None
    if source is not None:
        try:
            found = parse_signature(
                source.text,
                expression,
                defines=dict(source.defines),
                filename=source.filename,
                line=source.line,
            ).parameters
        except TypeError:
            # The user may know better than the parser: params= in full needs no signature.
            if not in_full:
                raise
        except ValueError as error:
            included = "#include" in source.text
            if not in_full and (inside := _in_header(source, expression)) is not None:
                return _described(source, expression, inside, params)
            if "__global__" not in source.text and not included:
                raise ValueError(
                    f"{error}. The source has no __global__: write "
                    f'extern "C" __global__ void {expression}(const float* x, float* out) {{ ... }}'
                ) from None
            if not in_full or not included:
                raise
    if found is None:
        with telling(f"kernel '{expression}'"):
            in_order = [
                _declared_in(source, name, text) for name, text in params.items() if "." not in name
            ]
            return _with_members(source, expression, in_order, params)
    return _described(source, expression, found, params)


def _in_header(source: Source, expression: str) -> tuple[Written, ...] | None:
    """The parameters of a kernel that stands in one of the user's files that a source includes."""
    for path in find_includes(source):
        text = Path(path).read_text("utf-8-sig", "replace")
        if "__global__" not in text:
            continue
        try:
            return parse_signature(
                text, expression, defines=dict(source.defines), filename=path
            ).parameters
        except (TypeError, ValueError):
            continue
    return None


def _described(
    source: Source | None,
    expression: str,
    found: Sequence[Written],
    params: Mapping[str, str],
) -> tuple[Parameter, ...]:
    """The parameters of a signature, with what the user says of them."""
    parameters = {p.name: Parameter(p.name, p.role, p.type, p.layout, p.default) for p in found}
    with telling(f"kernel '{expression}'"):
        for name, text in params.items():
            if name in parameters:
                parameters[name] = _overridden(source, parameters[name], text)
    return _with_members(source, expression, parameters.values(), params)


def _with_members(
    source: Source | None,
    expression: str,
    parameters: Iterable[Parameter],
    params: Mapping[str, str],
) -> tuple[Parameter, ...]:
    """The parameters, with the pointers in structs behind the struct that has them.

    Raises:
        ValueError: for a name in ``params`` that is none of theirs.
    """
    found: dict[str, Parameter] = {}
    for p in parameters:
        found[p.name] = p
        if p.role == "value" and isinstance(p.layout, Struct):
            for path, offset, pointer in p.layout.pointers(f"{p.name}."):
                role: Role = "in" if pointer.const else "out"
                member = Parameter(path, role, pointer.type, member=Member(p.name, offset))
                if path in params:
                    with telling(f"kernel '{expression}'"):
                        member = _overridden(source, member, params[path])
                found[path] = member
    if unknown := [name for name in params if name not in found]:
        raise ValueError(
            f"kernel '{expression}': params= names {unknown[0]!r}; the parameters are "
            f"{', '.join(found)}"
        )
    return tuple(found.values())


def _overridden(source: Source | None, parameter: Parameter, text: str) -> Parameter:
    role = _ROLES.get(text.strip())
    if role is not None:
        return replace(parameter, role=role)
    given = replace(_declared_in(source, parameter.name, text), member=parameter.member)
    if given.member and given.role == "value":
        raise ValueError(f"params={{{parameter.name!r}: {text!r}}}: `{parameter}` is a pointer")
    if given.role == "value" and parameter.role != "value" and element_of(given.type) is None:
        raise ValueError(
            f"params={{{parameter.name!r}: {text!r}}}: {text!r} is no role, which are "
            f"{', '.join(_ROLES)}, and no C++ type that is known here; the parameter is "
            f"`{parameter}`"
        )
    return given


def hidden_pointers(
    source: Source | None, parameters: Sequence[Parameter], keywords: Mapping[str, object]
) -> str:
    """What to write if missing by-value parameters are pointers under another name."""
    hints = []
    for p in parameters if source else ():
        known = p.layout is not None or element_of(p.type) is not None
        if p.role != "value" or p.name in keywords or known:
            continue
        assert source is not None
        declares = rf"\b(?:struct|class|union|enum)\b[^;{{]*\b{re.escape(p.type)}\b"
        if not re.search(declares, source.text):
            suggestion = f"params={{'{p.name}': 'const float*'}}"
            hints.append(
                f". '{p.name}' is of type {p.type}, which this source does not declare; if it is "
                f"a pointer, write {suggestion}"
            )
    return "".join(hints)


def python_signature(
    parameters: Sequence[Parameter], defaults: Mapping[str, object]
) -> inspect.Signature:
    """Inputs by position, values by keyword; what Python cannot name gets a name C++ reserves."""
    kinds = inspect.Parameter
    named = [p for p in parameters if p.name.isidentifier() and not keyword.iskeyword(p.name)]
    values = [
        kinds(p.name, kinds.KEYWORD_ONLY, default=defaults.get(p.name, kinds.empty))
        for p in named
        if p.is_keyword
    ]
    if any(p.is_keyword and p not in named for p in parameters):
        values.append(kinds("keywords__", kinds.VAR_KEYWORD))
    inputs: list[inspect.Parameter] = []
    optional = True
    for p in reversed([p for p in parameters if p.is_input]):
        optional = optional and p.is_optional
        name = p.name if p in named else p.python_name if p.member else f"{p.name}__"
        default = None if optional else kinds.empty
        inputs.insert(0, kinds(name, kinds.POSITIONAL_ONLY, default=default))
    return inspect.Signature([*inputs, *values])

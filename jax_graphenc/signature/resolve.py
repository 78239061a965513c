"""Type-ids as data, and the resolution of type aliases and template parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from jax_graphenc.signature.types import canonical

_QUALIFIERS = frozenset({"const", "volatile", "struct", "class", "union", "enum", "typename"})
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class TypeId:
    """A type taken apart: `const float* const` is base `float`, const, with the level `*const`.

    Levels go from the base outwards: `*`, `*const`, `[]`, `&`, `&&`, `()` (a function), `...`.
    """

    base: str
    const: bool = False
    levels: tuple[str, ...] = ()

    @property
    def is_pointer(self) -> bool:
        """Whether it is a pointer to values, or an array of values, which decays to one."""
        return len(self.levels) == 1 and self.levels[0] in ("*", "*const", "[]")

    def around(self, levels: tuple[str, ...], const: bool) -> TypeId:
        """This type with the levels of a declarator outside, and a const that qualifies it all."""
        inner = self.levels
        if const and inner and inner[-1] == "*":
            inner = (*inner[:-1], "*const")
        of_base = const and (not inner or inner == ("[]",))  # an array is as const as its elements
        return TypeId(self.base, self.const or of_base, inner + levels)

    def decayed(self) -> str:
        """The type as a function's type sees it: no const of the parameter itself, no array."""
        if not self.levels:
            return self.base
        last = "*" if self.levels[-1] in ("*const", "[]") else self.levels[-1]
        return str(TypeId(self.base, self.const, (*self.levels[:-1], last)))

    def __str__(self) -> str:
        """The type as C++ writes it, nearly: levels follow the base."""
        return f"{'const ' * self.const}{self.base}{''.join(self.levels)}"


def parse_type(text: str) -> TypeId:
    """Takes the text of a type-id apart."""
    base: list[str] = []
    levels: list[str] = []
    const = in_level = False
    for token, before, after in _nested(text):
        if before == after == 0:
            if token == "const" and levels:
                levels[-1] = levels[-1].removesuffix("const") + "const"
            elif token == "const":
                const = True
            elif token in ("*", "&", "&&", "..."):
                levels.append(token)
            elif token not in _QUALIFIERS:
                base.append(token)
            continue
        if before == 0:
            calls = token == "(" and base and base[-1] not in ("decltype", "typeof", "__typeof__")
            in_level = bool(calls or (token == "[" and base))
            if in_level:
                levels.append("()" if calls else "[]")
        if not in_level:
            base.append(token)
    return TypeId(canonical(" ".join(base)), const, tuple(levels))


def split_template(name: str) -> tuple[str, tuple[str, ...] | None]:
    """`ns::f<float, 4>` as `ns::f` and its arguments; None for a name without `<>` at its end."""
    path, angle, rest = name.partition("<")
    if not angle or not rest.endswith(">"):
        return name, None
    arguments: list[list[str]] = [[]]
    for token, before, after in _nested(rest[:-1]):
        if token == "," and before == after == 0:
            arguments.append([])
        else:
            arguments[-1].append(token)
    texts = tuple(canonical(" ".join(tokens)) for tokens in arguments)
    return path.strip(), () if texts == ("",) else texts


def substitute(text: str, bindings: Mapping[str, str]) -> str:
    """The text with names replaced, all at once; names behind `::` are of another scope."""
    if not bindings:
        return text
    names = "|".join(map(re.escape, bindings))
    return re.sub(rf"(?<![\w:])(?:{names})\b", lambda match: bindings[match[0]], text)


@dataclass(frozen=True, slots=True)
class Alias:
    """What `using name = type` or a typedef declares in `scope`, perhaps as a template."""

    type: TypeId
    scope: tuple[str, ...]
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aliases:
    """The type aliases of a source by qualified name."""

    by_name: dict[str, Alias] = field(default_factory=dict)

    def resolve(
        self,
        type_id: TypeId,
        scope: tuple[str, ...],
        bindings: Mapping[str, str],
        expanded: frozenset[Alias] = frozenset(),
    ) -> TypeId:
        """What a type written in `scope` stands for, with template parameters bound.

        An alias is not expanded within itself: there its name means something further out.
        """
        type_id = _bind(type_id, bindings)
        path, arguments = split_template(type_id.base)
        while alias := self._find(path, scope, expanded):
            bound = dict(zip(alias.parameters, arguments or (), strict=False))
            type_id = _bind(alias.type, bound).around(type_id.levels, type_id.const)
            scope = alias.scope
            expanded |= {alias}
            path, arguments = split_template(type_id.base)
        if arguments:
            inner = (
                str(self.resolve(TypeId(text), scope, {}, expanded))
                if self._find(split_template(text)[0], scope, expanded)
                else text
                for text in arguments
            )
            type_id = replace(type_id, base=f"{path}<{', '.join(inner)}>")
        return type_id

    def _find(self, path: str, scope: tuple[str, ...], expanded: frozenset[Alias]) -> Alias | None:
        """The innermost alias that `path` names when written in `scope`."""
        if path.startswith("::"):
            path, scope = path[2:], ()
        for depth in range(len(scope), -1, -1):
            alias = self.by_name.get("::".join((*scope[:depth], path)))
            if alias and alias not in expanded:
                return alias
        return None


def _bind(type_id: TypeId, bindings: Mapping[str, str]) -> TypeId:
    text = substitute(type_id.base, bindings)
    if text == type_id.base:
        return type_id
    return parse_type(text).around(type_id.levels, type_id.const)


def _nested(text: str) -> Iterator[tuple[str, int, int]]:
    """The tokens of a text, each with the bracket depth before and after it."""
    stack: list[str] = []
    for token in re.findall(r"::|&&|\.\.\.|->|[<>]=|\w+|[^\s\w]", text):
        before = len(stack)
        if token in _CLOSING and not (token == "<" and stack and stack[-1] == ")"):
            stack.append(_CLOSING[token])
        elif stack and token == stack[-1]:
            stack.pop()
        yield token, before, len(stack)

"""Constant expressions of C++, as far as a signature needs them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Lookup = Callable[[str], "int | None"]
"""The value of a named constant; ``None`` for a name that stands for none."""


class NotConstantError(ValueError):
    """An expression is none that is evaluated here."""


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<float> (?:\d[\d']*\.[\d']*|\.\d[\d']*|\d[\d']*(?=[eE]))(?:[eE][+-]?\d+)?(?P<f>[fF]?)\b
        | \d[\d']*\.(?P<f2>[fF]?) )
    | (?P<integer> 0[xX][\da-fA-F']+ | 0[bB][01']+ | \d[\d']* ) [uUlLzZ]*\b
    | '(?P<character>[^'\\])'
    | (?P<name> (?:::)?[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)* )
    | (?P<operator> << | >> | [-+*/%&|^~()] )
    )""",
    re.VERBOSE,
)
_WORDS = {"true": True, "false": False, "nullptr": None, "NULL": None}
_PRECEDENCE = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}


def evaluate(text: str, lookup: Lookup) -> Any:
    """The value of a literal, or of an expression of integers and named constants.

    A literal of type ``float`` is a ``numpy.float32``, ``nullptr`` is ``None``.

    Raises:
      NotConstantError: for any other expression.
    """
    tokens = list(_tokens(text, lookup))
    value = _expression(tokens, 0)
    if tokens:
        raise NotConstantError(text)
    return value


def _tokens(text: str, lookup: Lookup) -> Iterator[Any]:
    """Values, as tuples of one, and operators."""
    at, text = 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotConstantError(text)
        at = match.end()
        if match["float"]:
            digits = match["float"].rstrip("fF").replace("'", "")
            narrow = match["f"] or match["f2"]
            yield (np.float32(digits) if narrow else float(digits),)
        elif match["integer"]:
            digits = match["integer"].replace("'", "")
            octal = digits.isdigit() and len(digits) > 1 and digits[0] == "0"
            yield (int(digits, 8 if octal else 0),)
        elif match["character"]:
            yield (ord(match["character"]),)
        elif match["name"] in _WORDS:
            yield (_WORDS[match["name"]],)
        elif match["name"]:
            value = lookup(re.sub(r"\s", "", match["name"]))
            if value is None:
                raise NotConstantError(text)
            yield (value,)
        else:
            yield match["operator"]


def _expression(tokens: list[Any], least: int) -> Any:
    value = _operand(tokens)
    while tokens and _PRECEDENCE.get(tokens[0], 0) > least:
        operator = tokens.pop(0)
        value = _apply(operator, value, _expression(tokens, _PRECEDENCE[operator]))
    return value


def _operand(tokens: list[Any]) -> Any:
    token = tokens.pop(0) if tokens else ")"
    if isinstance(token, tuple):
        return token[0]
    if token == "(":
        value = _expression(tokens, 0)
        if not tokens or tokens.pop(0) != ")":
            raise NotConstantError("a parenthesis is missing")
        return value
    if token not in ("-", "+", "~"):
        raise NotConstantError(token)
    value = _operand(tokens)
    if value is None or (token == "~" and not isinstance(value, int)):
        raise NotConstantError(token)
    if isinstance(value, bool):
        value = int(value)
    return -value if token == "-" else value if token == "+" else ~value


def _apply(operator: str, a: Any, b: Any) -> int:
    if not isinstance(a, int) or not isinstance(b, int):
        raise NotConstantError(operator)
    if operator in ("<<", ">>"):
        if not 0 <= b < 64:
            raise NotConstantError(operator)
        return a << b if operator == "<<" else a >> b
    if operator in ("/", "%"):
        if b == 0:
            raise NotConstantError(operator)
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # towards zero
        return quotient if operator == "/" else a - b * quotient
    functions: dict[str, Callable[[int, int], int]] = {
        "|": int.__or__,
        "^": int.__xor__,
        "&": int.__and__,
        "+": int.__add__,
        "-": int.__sub__,
        "*": int.__mul__,
    }
    return functions[operator](int(a), int(b))

"""``sharding=``: the dimensions of a kernel's arrays that may be split over devices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jax_graphenc.base.shapes import Array

Names = tuple[str | None, ...]
"""Of an array's dimensions; ``None`` for one that stays whole."""

_WORD = re.compile(r"[^\W\d_]\w*|_|\.\.\.")


@dataclass(frozen=True, slots=True)
class Rule:
    """The names that a rule gives to the dimensions of inputs and outputs, in the kernel's order.

    ``"_"`` is a dimension that stays whole, and ``"..."``, in front, as many as there are.
    """

    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]

    @property
    def splits(self) -> bool:
        """Whether there is a dimension that may be split."""
        return any(word != "_" for words in self.outputs for word in words)


def without_inputs(rule: Rule, positions: Sequence[int]) -> Rule:
    """The rule of a kernel without some of its inputs; what only they named stays whole."""
    inputs = tuple(words for i, words in enumerate(rule.inputs) if i not in positions)
    known = {word for words in inputs for word in words} | {"..."}
    outputs = tuple(tuple(w if w in known else "_" for w in words) for words in rule.outputs)
    return Rule(inputs, outputs)


def parse(text: str, inputs: Sequence[str], outputs: Sequence[str], spelled: str) -> Rule:
    """Reads a rule such as ``"b n, n -> b n"``.

    Args:
        text: the rule.
        inputs: the kernel's, by name.
        outputs: likewise.
        spelled: the kernel's signature, for messages.

    Raises:
        TypeError: if it is no string.
        ValueError: for what is no rule, or one that a split call could not keep.
    """
    where = f"kernel {spelled}: sharding={text!r}"
    if not isinstance(text, str):
        raise TypeError(f"{where}: a string such as 'b n, n -> b n' is expected")
    sides = text.split("->")
    if len(sides) != 2:
        raise ValueError(f"{where}: inputs, '->' and outputs are expected, as in 'b n, n -> b n'")
    rule = Rule(
        *(
            tuple(_words(part, where) for part in (side.split(",") if side.strip() else ()))
            for side in sides
        )
    )
    # One array without dimensions is an empty side.
    if not rule.inputs and len(inputs) == 1:
        rule = replace(rule, inputs=((),))
    if not rule.outputs and len(outputs) == 1:
        rule = replace(rule, outputs=((),))
    _check_count("inputs", rule.inputs, inputs, where)
    _check_count("outputs", rule.outputs, outputs, where)
    _check_split(rule, where)
    return rule


def _check_count(what: str, arrays: Sequence[object], names: Sequence[str], where: str) -> None:
    if len(names) != len(arrays):
        counted = what if len(arrays) != 1 else what.removesuffix("s")
        raise ValueError(
            f"{where} describes {len(arrays)} {counted}; the kernel has {len(names)} "
            f"({', '.join(names) or 'none'})"
        )


def _check_split(rule: Rule, where: str) -> None:
    """Refuses names that a device could not split by."""
    for word in {w: None for words in (*rule.inputs, *rule.outputs) for w in words if w != "_"}:
        # Each device computes a part of every output, or the parts would not fit together.
        if not all(word in words for words in rule.outputs):
            raise ValueError(
                f"{where}: '{word}' may be split only if every output has it; write _ for a "
                "dimension that the kernel needs whole"
            )
        if not any(word in words for words in rule.inputs):
            raise ValueError(
                f"{where}: '{word}' is a dimension of no input, so that a device could not tell "
                "which part of it is its own; write _"
            )


def _words(part: str, where: str) -> tuple[str, ...]:
    words = tuple(part.split())
    for i, word in enumerate(words):
        if not _WORD.fullmatch(word) or (word == "..." and i):
            raise ValueError(
                f"{where}: {word!r}: names, _ for a dimension that stays whole, and ... in front "
                "for any number of dimensions are expected"
            )
        if word != "_" and word in words[:i]:
            raise ValueError(f"{where}: an array has '{word}' twice")
    return words


def dimensions(
    rule: Rule, shapes: Sequence[tuple[int, ...]], kernel: str, extra: int = 0
) -> list[Names]:
    """The names of the dimensions of arrays of these shapes: the inputs', then the outputs'.

    Args:
        rule: of the kernel.
        shapes: of the arrays.
        kernel: its name, for messages.
        extra: dimensions that every array has in front of those that the rule speaks of. They may
            be split, and so may those of ``...``; one of size 1 beside larger ones stays whole.

    Raises:
        ValueError: if the rule does not fit.
    """
    sizes: dict[str, int] = {}
    given: list[list[str | None]] = []
    dots: int | None = None
    for words, shape in zip((*rule.inputs, *rule.outputs), shapes, strict=True):
        names: list[str | None] = [word if word != "_" else None for word in words]
        if words[:1] == ("...",):
            rest = len(shape) - extra - len(words) + 1
            dots = rest if dots is None else dots
            names[:1] = [f"...{i}" for i in range(dots)]
        names[:0] = [f"...extra {i}" for i in range(extra)]
        if len(names) != len(shape):
            raise ValueError(
                f"kernel '{kernel}': sharding= has '{' '.join(words)}' for an array of shape "
                f"{shape}"
            )
        for name, size in zip(names, shape, strict=True):
            if name is not None:
                known = sizes.setdefault(name, size)
                sizes[name] = size if name.startswith("...") and known == 1 else known
        given.append(names)
    found = []
    for i, (names, shape) in enumerate(zip(given, shapes, strict=True)):
        for name, size in zip(names, shape, strict=True):
            if name is None or size == sizes[name]:
                continue
            if i >= len(rule.inputs) or size != 1 or not name.startswith("..."):
                raise ValueError(
                    f"kernel '{kernel}': sharding= gives the name '{name}' to dimensions of "
                    f"{sizes[name]} and {size}; those that are split together have one size"
                )
        found.append(
            tuple(
                name if name is not None and size == sizes[name] else None
                for name, size in zip(names, shape, strict=True)
            )
        )
    return found


def check(rule: Rule, inputs: Sequence[Array], results: Sequence[Array], kernel: str) -> None:
    """Holds a rule against the shapes of a call.

    Raises:
        ValueError: if it does not fit.
    """
    dimensions(rule, [shape for shape, _ in (*inputs, *results)], kernel)

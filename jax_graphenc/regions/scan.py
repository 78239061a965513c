"""``lax.scan`` as it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from jax.extend import core

from jax_graphenc.base.jax_compat import scan_arity
from jax_graphenc.regions.jaxprs import closed

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan equation's parameters.

    Attributes:
        body: from constants, carry and a row of each stacked operand to carry and rows of results.
        length: how many iterations there are.
        reverse: whether the last row comes first.
        consts, carries, stacks: how many constants, carried values and stacked results.
    """

    body: core.ClosedJaxpr
    length: int
    reverse: bool
    consts: int
    carries: int
    stacks: int

    @staticmethod
    def of(eqn: core.JaxprEqn) -> Scan:
        """Reads a scan equation."""
        consts, carries = scan_arity(eqn)
        body = closed(eqn.params["jaxpr"])
        stacks = len(eqn.outvars) - carries
        return Scan(body, eqn.params["length"], eqn.params["reverse"], consts, carries, stacks)

    def split(self, operands: Sequence[_T]) -> tuple[list[_T], list[_T], list[_T]]:
        """Constants, carry and stacked operands."""
        first, second = self.consts, self.consts + self.carries
        return list(operands[:first]), list(operands[first:second]), list(operands[second:])

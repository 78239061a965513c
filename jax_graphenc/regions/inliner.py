"""Going through a jaxpr equation by equation, with atoms in the place of its variables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from jax.extend import core

from jax_graphenc.regions.literals import Atom


class Inliner(ABC):
    """Reads the equations of a jaxpr, and of the jaxprs that it decides to inline."""

    def inline(self, jaxpr: core.ClosedJaxpr, operands: Sequence[Atom]) -> list[Atom]:
        """Reads a jaxpr, with these operands for its inputs; returns its outputs."""
        env: dict[core.Var, Atom] = dict(zip(jaxpr.jaxpr.invars, operands, strict=True))
        for var, value in zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True):
            env[var] = core.Literal(value, var.aval)

        def read(atom: Atom) -> Atom:
            return atom if isinstance(atom, core.Literal) else env[atom]

        for eqn in jaxpr.jaxpr.eqns:
            results = self.equation(eqn, [read(atom) for atom in eqn.invars])
            env.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.jaxpr.outvars]

    @abstractmethod
    def equation(self, eqn: core.JaxprEqn, operands: list[Atom]) -> Sequence[Atom]:
        """Reads an equation, with these operands; returns what its results are."""

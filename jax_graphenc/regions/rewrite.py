"""A region's jaxpr with its programs in it, for one kind of device."""

from __future__ import annotations

from typing import Any

import jax
from jax.extend import core

from jax_graphenc.base.options import current as current_options
from jax_graphenc.calls.call import KernelCall
from jax_graphenc.devices.target import Target
from jax_graphenc.primitives.program import program_p
from jax_graphenc.programs import program
from jax_graphenc.programs.builder import ProgramBuilder
from jax_graphenc.programs.compiled_call import compile_for
from jax_graphenc.programs.custom_call import stays_out
from jax_graphenc.programs.memory_plan import GUARD_BYTES
from jax_graphenc.regions.equations import Kind
from jax_graphenc.regions.jaxprs import closed, has_kernel, holds_kernel, is_jaxpr
from jax_graphenc.regions.partition import Partition, Stage, partition
from jax_graphenc.regions.record import Carried, record
from jax_graphenc.regions.scan import Scan


class Rewriter:
    """Puts programs in the place of a region's kernels.

    Args:
        name: of the programs.
        target: what kernels are compiled for.
    """

    def __init__(self, name: str, target: Target) -> None:
        self._name = name
        self._target = target
        # By identity first: equal calls of a region are mostly one object, and hashing takes long.
        self._compiled: dict[int, tuple[KernelCall, program.Kernel | None]] = {}

    def rewrite(self, jaxpr: core.ClosedJaxpr, carried: Carried = ()) -> core.ClosedJaxpr:
        """The jaxpr with programs instead of kernels, also in the bodies of its control flow.

        Raises:
            KernelCompileError, LaunchLimitError, TypeError: as a kernel's lowering does.
        """
        cut = partition(jaxpr, current_options().max_unrolled_nodes, self._is_foreign)
        eqns: list[core.JaxprEqn] = []
        for stage in cut.stages:
            if stage.is_program:
                eqns.append(self._program(stage, _donated(cut, stage, carried)))
            else:
                eqns += (self._foreign(e.eqn) for e in stage.equations)
        new = jaxpr.jaxpr.replace(constvars=[], invars=cut.invars, outvars=cut.outvars, eqns=eqns)
        return core.ClosedJaxpr(new, ())

    def _kernel(self, call: KernelCall) -> program.Kernel | None:
        known = self._compiled.get(id(call))
        if known is None:
            known = self._compiled[id(call)] = (call, compile_for(call, self._target))
        return known[1]

    def _is_foreign(self, eqn: core.JaxprEqn) -> bool:
        """Whether a kernel's reference runs in its place."""
        return self._kernel(eqn.params["call"]) is None

    def _foreign(self, eqn: core.JaxprEqn) -> core.JaxprEqn:
        """An equation of XLA's, with programs in its bodies."""
        name = eqn.primitive.name
        if not holds_kernel(eqn):
            return eqn
        bodies: dict[str, Carried] = {}
        if name == "scan":
            scan = Scan.of(eqn)
            bodies["jaxpr"] = [(scan.consts + i, i) for i in range(scan.carries)]
        elif name == "while":
            consts, carries = eqn.params["body_nconsts"], len(eqn.outvars)
            bodies["body_jaxpr"] = [(consts + i, i) for i in range(carries)]
        params = {
            key: self._bodies(param, bodies.get(key, ())) for key, param in eqn.params.items()
        }
        changed: core.JaxprEqn = eqn.replace(params=params)
        return changed

    def _bodies(self, param: Any, carried: Carried) -> Any:
        """A parameter, which may be a tree, with programs in its jaxprs."""

        def rewritten(part: Any) -> Any:
            if not is_jaxpr(part) or not has_kernel(closed(part).jaxpr):
                return part
            new = self.rewrite(closed(part), carried)
            return new if isinstance(part, core.ClosedJaxpr) else new.jaxpr

        return jax.tree.map(rewritten, param, is_leaf=is_jaxpr)

    # ------------------------------------------------------------------ programs

    def _program(self, stage: Stage, donated: Carried) -> core.JaxprEqn:
        builder = ProgramBuilder(
            self._name,
            reuse=current_options().scratch_reuse,
            gap=GUARD_BYTES if self._target.platform == "cpu" else 0,
        )
        made = record(stage, builder, self._needed_kernel, donated)
        outvars: list[Any] = list(stage.results)
        calls = [e.eqn.params["call"] for e in stage.equations if e.kind is Kind.KERNEL]
        return core.new_jaxpr_eqn(
            list(stage.operands),
            outvars,
            program_p,
            {
                "program": made,
                "results": tuple(v.aval for v in outvars),
                "uncaptured": any(call.observed.uncaptured for call in calls) or stays_out(made),
            },
            core.no_effects,
            stage.equations[0].eqn.source_info,
        )

    def _needed_kernel(self, call: KernelCall) -> program.Kernel:
        kernel = self._kernel(call)
        assert kernel is not None
        return kernel


def _donated(cut: Partition, stage: Stage, carried: Carried) -> Carried:
    """Pairs of a program's operands and results that a loop carries and nothing else reads."""
    others = {
        id(v)
        for other in cut.stages
        if other is not stage
        for e in other.equations
        for v in e.eqn.invars
    } | {id(v) for v in cut.outvars}
    operands = {id(v): i for i, v in enumerate(stage.operands)}
    results = {id(v): i for i, v in enumerate(stage.results)}
    pairs = []
    for i, o in carried:
        old, new = cut.invars[i], cut.outvars[o]
        if id(old) in operands and id(new) in results and id(old) not in others:
            pairs.append((operands[id(old)], results[id(new)]))
    return pairs

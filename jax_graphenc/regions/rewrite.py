"""A region's jaxpr with its programs in it, for one kind of device."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.interpreters import mlir

from jax_graphenc.base.options import current as current_options
from jax_graphenc.base.shapes import byte_count
from jax_graphenc.calls.call import KernelCall
from jax_graphenc.devices.target import NoGpuError, Target, target_of
from jax_graphenc.primitives import partitioning
from jax_graphenc.primitives.kernel import kernel_p
from jax_graphenc.primitives.program import program_p
from jax_graphenc.primitives.region import region_p
from jax_graphenc.programs import program
from jax_graphenc.programs.builder import ProgramBuilder, Value
from jax_graphenc.programs.compiled_call import compile_for
from jax_graphenc.programs.custom_call import is_large
from jax_graphenc.regions.builtin_kernels import sum_of
from jax_graphenc.regions.equations import (
    SUMMED,
    Atom,
    Kind,
    is_scalar_literal,
    key_of,
    pattern_of,
    view_offset,
)
from jax_graphenc.regions.flatten import FlatEquation
from jax_graphenc.regions.jaxprs import closed, holds_kernel
from jax_graphenc.regions.loops import Scan
from jax_graphenc.regions.partition import Partition, Stage, partition

# (input, output) of a jaxpr, by position, that a loop carries from one to the other.
Carried = Sequence[tuple[int, int]]


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
        if name == "cuda_kernel" or not any(map(holds_kernel, eqn.params.values())):
            return eqn
        bodies: dict[str, Carried] = {}
        if name == "scan":
            scan = Scan.of(eqn)
            bodies["jaxpr"] = [(scan.consts + i, i) for i in range(scan.carries)]
        elif name == "while":
            consts, carries = eqn.params["body_nconsts"], len(eqn.outvars)
            bodies["body_jaxpr"] = [(consts + i, i) for i in range(carries)]
        params = {key: self._body(param, bodies.get(key, ())) for key, param in eqn.params.items()}
        changed: core.JaxprEqn = eqn.replace(params=params)
        return changed

    def _body(self, param: Any, carried: Carried) -> Any:
        if isinstance(param, tuple | list):
            return type(param)(self._body(part, carried) for part in param)
        if not holds_kernel(param):
            return param
        new = self.rewrite(closed(param), carried)
        return new if hasattr(param, "consts") else new.jaxpr

    # ------------------------------------------------------------------ programs

    def _program(self, stage: Stage, donated: Carried) -> core.JaxprEqn:
        builder = ProgramBuilder(self._name, reuse=current_options().scratch_reuse)
        recorder = _Recorder(builder, self._kernel)
        for atom in stage.operands:
            recorder.values[key_of(atom)] = builder.argument(byte_count(atom.aval))
        for e in stage.equations:
            recorder.record(e)
        made = builder.build([recorder.values[v] for v in stage.results], donated)
        outvars: list[Any] = list(stage.results)
        calls = [e.eqn.params["call"] for e in stage.equations if e.kind is Kind.KERNEL]
        return core.new_jaxpr_eqn(
            list(stage.operands),
            outvars,
            program_p,
            {
                "program": made,
                "results": tuple(v.aval for v in outvars),
                "uncaptured": any(call.observed.uncaptured for call in calls) or is_large(made),
            },
            core.no_effects,
            stage.equations[0].eqn.source_info,
        )


class _Recorder:
    """Gives a stage's equations to a builder."""

    def __init__(self, builder: ProgramBuilder, kernel: Any) -> None:
        self.values: dict[Any, Value] = {}
        self._builder = builder
        self._kernel = kernel

    def record(self, e: FlatEquation) -> None:
        eqn, builder = e.eqn, self._builder
        operands = [self._value(atom) for atom in eqn.invars]
        invars: list[Any] = eqn.invars
        out: Any = eqn.outvars[0]
        if e.kind is Kind.KERNEL:
            call = eqn.params["call"]
            made = builder.launch(call, self._kernel(call), operands)
            self.values.update(zip(eqn.outvars, made, strict=True))
        elif e.kind is Kind.VIEW:
            offset = view_offset(eqn)
            assert offset is not None
            self.values[out] = builder.view(operands[0], offset, byte_count(out.aval))
        elif e.kind is Kind.FILL:
            pattern = pattern_of(invars[0].val, out.aval.dtype)
            assert pattern is not None
            self.values[out] = builder.fill(pattern, byte_count(out.aval))
        elif e.kind is Kind.SUM:
            dtype, each = SUMMED[str(out.aval.dtype)]
            call = sum_of(dtype, each * math.prod(out.aval.shape))
            self.values[out] = builder.launch(call, self._kernel(call), operands)[0]
        else:
            assert e.kind is Kind.CONCATENATE
            self.values[out] = builder.concatenate(operands)

    def _value(self, atom: Atom) -> Value:
        if not is_scalar_literal(atom):
            return self.values[key_of(atom)]
        data = np.asarray(atom.val).astype(atom.aval.dtype).tobytes()
        pattern = pattern_of(atom.val, atom.aval.dtype)
        if pattern is not None:
            return self._builder.fill(pattern, len(data))
        words = [data[i : i + 4] for i in range(0, len(data), 4)]
        return self._builder.concatenate([self._builder.fill(word, 4) for word in words])


def _donated(cut: Partition, stage: Stage, carried: Carried) -> Carried:
    """Pairs of a program's operands and results that a loop carries and nobody else reads."""
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


def _lower(
    platform: str,
    ctx: mlir.LoweringRuleContext,
    *operands: Any,
    jaxpr: core.ClosedJaxpr,
    name: str,
    strict: bool,
) -> Sequence[Any]:
    """The lowering rule of a region."""
    # A program cannot be split: kernels that can be are left to XLA, one by one.
    if not strict and partitioning.is_partitioned(ctx) and _has(jaxpr.jaxpr, _splits):
        return _lower_jaxpr(ctx, operands, jaxpr, name)
    new = with_programs(platform, jaxpr, name)
    if partitioning.is_partitioned(ctx) and _has(new.jaxpr, lambda eqn: eqn.primitive is program_p):
        partitioning.warn_of_gather(
            ctx,
            f"region '{name}'",
            "Call it inside jax.shard_map, where it sees each device's part and stays one program"
            + ("" if strict else ", or give its kernels cuda_kernel(..., sharding=)"),
        )
    return _lower_jaxpr(ctx, operands, new, name)


def with_programs(platform: str, jaxpr: core.ClosedJaxpr, name: str) -> core.ClosedJaxpr:
    """A region's jaxpr with programs in it, as it is lowered for a platform."""
    try:
        target = target_of(platform)
    except NoGpuError as error:
        raise RuntimeError(f"region '{name}' cannot be lowered for CUDA: {error}") from None
    with _collector_paused():
        return Rewriter(name, target).rewrite(jaxpr)


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Keeps Python from looking for garbage among many small objects of which none is any.

    It doubled the time that a region of 10,000 kernels takes to lower.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _lower_jaxpr(
    ctx: mlir.LoweringRuleContext, operands: Sequence[Any], jaxpr: core.ClosedJaxpr, name: str
) -> Sequence[Any]:
    def named(*operands: Any) -> Any:
        with jax.named_scope(name):  # what profilers show
            return core.jaxpr_as_fun(jaxpr)(*operands)

    lowered: Sequence[Any] = mlir.lower_fun(named, multiple_results=True)(ctx, *operands)
    return lowered


def _has(jaxpr: core.Jaxpr, wanted: Callable[[core.JaxprEqn], bool]) -> bool:
    """Whether a jaxpr has such an equation outside ``shard_map``, however deep."""
    return any(
        wanted(eqn)
        or (
            eqn.primitive.name != "shard_map"
            and any(_has(inner, wanted) for inner in core.jaxprs_in_params(eqn.params))
        )
        for eqn in jaxpr.eqns
    )


def _splits(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive is kernel_p and partitioning.may_split(eqn.params["call"])


for _platform in ("cpu", "cuda"):
    mlir.register_lowering(region_p, functools.partial(_lower, _platform), platform=_platform)

"""A stage's equations as the operations of a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jax_graphenc.base.shapes import byte_count
from jax_graphenc.calls.call import KernelCall
from jax_graphenc.programs.builder import ProgramBuilder, Value
from jax_graphenc.programs.program import Kernel, Program
from jax_graphenc.regions.builtin_kernels import sum_of
from jax_graphenc.regions.equations import SUMMED, Kind
from jax_graphenc.regions.flatten import FlatEquation
from jax_graphenc.regions.literals import Atom, is_scalar_literal, key_of, pattern_of
from jax_graphenc.regions.partition import Stage
from jax_graphenc.regions.views import view_offset

Carried = Sequence[tuple[int, int]]
"""(input, output), by position, that a loop carries from one to the other."""


def record(
    stage: Stage,
    builder: ProgramBuilder,
    compiled: Callable[[KernelCall], Kernel],
    donated: Carried,
) -> Program:
    """Makes a stage's program.

    Args:
        stage: of equations that a program can do.
        builder: a new one.
        compiled: a call's kernel.
        donated: pairs of the stage's operands and results that may share their memory.
    """
    recorder = _Recorder(builder, compiled)
    for atom in stage.operands:
        recorder.values[key_of(atom)] = builder.argument(byte_count(atom.aval))
    for e in stage.equations:
        recorder.record(e)
    return builder.build([recorder.values[v] for v in stage.results], donated)


class _Recorder:
    """Gives a stage's equations to a builder."""

    def __init__(self, builder: ProgramBuilder, compiled: Callable[[KernelCall], Kernel]) -> None:
        self.values: dict[Any, Value] = {}
        self._builder = builder
        self._compiled = compiled

    def record(self, e: FlatEquation) -> None:
        eqn, builder = e.eqn, self._builder
        operands = [self._value(atom) for atom in eqn.invars]
        invars: list[Any] = eqn.invars
        out: Any = eqn.outvars[0]
        if e.kind is Kind.KERNEL:
            call = eqn.params["call"]
            made = builder.launch(call, self._compiled(call), operands)
            self.values.update(zip(eqn.outvars, made, strict=True))
        elif e.kind is Kind.BARRIER:
            self.values[out] = operands[0]
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
            self.values[out] = builder.launch(call, self._compiled(call), operands)[0]
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

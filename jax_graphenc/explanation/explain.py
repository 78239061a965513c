"""``jge.explain``: what a function's kernels become, without running it."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.extend import core, source_info_util
from jax.interpreters import partial_eval

from jax_graphenc import _core
from jax_graphenc.base.notebooks import name_of_file
from jax_graphenc.base.options import current as current_options
from jax_graphenc.base.shapes import byte_count
from jax_graphenc.base.tracebacks import ends_at_caller
from jax_graphenc.devices.target import Target, target_of
from jax_graphenc.explanation.data import Memory, Operation, Program, describe
from jax_graphenc.explanation.explanation import Explanation
from jax_graphenc.primitives.kernel import kernel_p
from jax_graphenc.primitives.program import program_p
from jax_graphenc.primitives.region import region_p
from jax_graphenc.programs import program
from jax_graphenc.programs.compiled_call import compile_for
from jax_graphenc.programs.custom_call import program_of
from jax_graphenc.regions.equations import Kind, kind_of
from jax_graphenc.regions.jaxprs import between, inner_call
from jax_graphenc.regions.lowering import with_programs


@ends_at_caller
def explain(
    fn: Callable[..., Any], /, *args: Any, platform: str | None = None, **kwargs: Any
) -> Explanation:
    """Shows what a function's kernels become when it is lowered; runs nothing.

    It traces the function, cuts, compiles and encodes its regions as lowering does, and decodes the
    result natively as XLA's instantiation does, so it shows what will run. For a ``jax.jit``
    function with sharded arguments it shows each kernel and region on one device.

    Args:
        fn: a function of arrays, such as one made by ``jax.jit``, ``jge.graph``,
            ``jge.cuda_kernel``, ``jax.grad`` or ``jax.vmap``.
        *args: its arguments; ``jax.ShapeDtypeStruct`` stands for an array. Python values are traced
            if ``fn`` is a ``jax.jit`` function, and constants otherwise.
        platform: ``"cpu"`` or ``"cuda"``; JAX's default backend by default. Name a GPU that this
            process does not have with ``jge.options(cuda_targets="sm_90a")``.
        **kwargs: its keyword arguments, likewise.

    Raises:
        TypeError: if ``fn`` is not callable.
        ValueError: for a platform that kernels do not run on.
        RuntimeError: for ``"cuda"`` without a GPU and without ``cuda_targets``.
        KernelCompileError, LaunchLimitError: as the function's lowering does.
    """
    if not callable(fn):
        raise TypeError(f"explain: fn={fn!r} is not callable: a function of arrays is expected")
    if platform is None:
        platform = jax.default_backend()
    platform = {"gpu": "cuda"}.get(platform, platform)
    if platform not in ("cpu", "cuda"):
        raise ValueError(f"explain: platform={platform!r}: 'cpu' or 'cuda' is expected")
    target = target_of(platform)
    collector = _Collector(target)
    collector.walk(_traced(fn, args, kwargs), _Place())
    references = Counter(collector.references)
    return Explanation(
        _name_of(fn),
        ",".join(target.architectures),
        tuple(collector.programs),
        tuple(replace(operation, count=n) for operation, n in references.items()),
        current_options().scratch_reuse,
    )


def _traced(fn: Callable[..., Any], args: Any, kwargs: Any) -> core.Jaxpr:
    if isinstance(fn, jax.stages.Wrapped):  # jax.jit knows which arguments are static
        return _jaxpr_of(fn, *args, **kwargs)
    leaves, tree = jax.tree.flatten((args, kwargs))
    is_array = [hasattr(x, "shape") and not isinstance(x, np.generic) for x in leaves]

    def of_arrays(*arrays: Any) -> Any:
        given = iter(arrays)
        whole = [next(given) if a else x for a, x in zip(is_array, leaves, strict=True)]
        args, kwargs = jax.tree.unflatten(tree, whole)
        return fn(*args, **kwargs)

    return _jaxpr_of(jax.jit(of_arrays), *itertools.compress(leaves, is_array))


def _jaxpr_of(jitted: Any, *args: Any, **kwargs: Any) -> core.Jaxpr:
    jaxpr = jitted.trace(*args, **kwargs).jaxpr.jaxpr
    # As jax.jit does before lowering.
    needed: core.Jaxpr = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0]
    return needed


def _name_of(fn: Any) -> str:
    while not hasattr(fn, "__name__") and hasattr(fn, "func"):
        fn = fn.func  # functools.partial
    return _shown(getattr(fn, "__name__", None) or getattr(fn, "name", type(fn).__name__))


def _shown(name: object) -> str:
    """A name or path with unprintable characters escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(name))


@dataclass(frozen=True, slots=True)
class _Place:
    """An equation's place in the function."""

    region: str | None = None
    where: str = ""
    inside: tuple[str, ...] = ()


class _Collector:
    """Finds the programs of a jaxpr, as its lowering makes them."""

    def __init__(self, target: Target) -> None:
        self.programs: list[Program] = []
        self.references: list[Operation] = []
        self._target = target
        info = target.infos[0]  # without a compute capability for PTX
        limits = _core.graph_limits(info.get("compute_major", 0), info.get("compute_minor", 0))
        self._max_ops: int = limits["max_ops"]
        options = current_options()
        self._use_graphs = options.use_graphs and not options.debug

    def walk(self, jaxpr: core.Jaxpr, place: _Place) -> None:
        between = _between_programs(jaxpr) if place.region is not None else {}
        for i, eqn in enumerate(jaxpr.eqns):
            first = len(self.programs)
            self._visit(eqn, replace(place, where=_line(eqn) or place.where), place)
            if i in between and len(self.programs) > first:
                self.programs[first] = replace(self.programs[first], split_by=between[i])

    def _visit(self, eqn: core.JaxprEqn, here: _Place, outside: _Place) -> None:
        params = eqn.params
        if eqn.primitive is region_p:
            new = with_programs(self._target.platform, params["jaxpr"], params["name"])
            self.walk(new.jaxpr, replace(here, region=_shown(params["name"])))
        elif eqn.primitive is program_p:
            # The equation's own line is that of a kernel inside.
            self._add(eqn, params["program"], params["uncaptured"], outside)
        elif eqn.primitive is kernel_p:
            call = params["call"]
            kernel = compile_for(call, self._target)
            if kernel is None:
                self.references.append(Operation(call.label, here.where))
            else:
                made, uncaptured = program_of(
                    call, kernel, [byte_count(v.aval) for v in eqn.invars]
                )
                self._add(eqn, made, uncaptured, here)
        elif (inner := inner_call(eqn)) is not None:
            self.walk(inner.jaxpr, here)
        else:
            for inside, body in _bodies(eqn):
                self.walk(body, replace(here, inside=(*here.inside, inside)))

    def _add(
        self, eqn: core.JaxprEqn, made: program.Program, uncaptured: bool, place: _Place
    ) -> None:
        arguments = [
            Memory(f"arg{i}", _type(v), size)
            for i, (v, size) in enumerate(zip(eqn.invars, made.arguments, strict=True))
        ]
        shared = {result: argument for argument, result in made.aliases}
        results = [
            Memory("scratch", "", size)
            if i == made.scratch
            else Memory(
                f"out{i}", _type(eqn.outvars[i]), size, f"arg{shared[i]}" if i in shared else ""
            )
            for i, size in enumerate(made.results)
        ]
        self.programs.append(
            describe(
                made.encode(),
                arguments,
                results,
                self._max_ops,
                self._use_graphs and len(made.nodes) > 1,
                name=made.name,
                region=place.region,
                where=place.where,
                inside=place.inside,
                split_by=(),
                uncaptured=uncaptured,
            )
        )


def _bodies(eqn: core.JaxprEqn) -> Iterator[tuple[str, core.Jaxpr]]:
    """An equation's inner jaxprs, each with a description."""
    name = eqn.primitive.name
    line = _line(eqn)
    at = f" at {line}" if line else ""
    for i, body in enumerate(core.jaxprs_in_params(eqn.params)):
        what = name
        if name == "scan":
            what = f"scan of {eqn.params['length']} steps"
        elif name == "cond":
            what = f"branch {i} of cond"
        yield what + at, body


def _holds_program(eqn: core.JaxprEqn) -> bool:
    return eqn.primitive is program_p or any(
        any(map(_holds_program, body.eqns)) for body in core.jaxprs_in_params(eqn.params)
    )


def _between_programs(jaxpr: core.Jaxpr) -> dict[int, tuple[Operation, ...]]:
    """Operations that run between two programs, by the position of the second.

    Loops and branches with programs inside count as programs.
    """
    holds = [_holds_program(eqn) for eqn in jaxpr.eqns]
    found: dict[int, tuple[Operation, ...]] = {}
    operations: list[Operation] = []
    for i, (eqn, program_inside, counts) in enumerate(
        zip(jaxpr.eqns, holds, between(jaxpr.eqns, holds), strict=True)
    ):
        if counts and kind_of(eqn) in (Kind.FOREIGN, Kind.KERNEL):
            operations.append(Operation(_what(eqn), _line(eqn)))
        if program_inside:
            found[i] = tuple(replace(op, count=n) for op, n in Counter(operations).items())
            operations = []
    return found


def _what(eqn: core.JaxprEqn) -> str:
    if eqn.primitive is kernel_p:
        return f"{eqn.params['call'].label} (its reference)"
    name = eqn.params.get("name")
    return f"{eqn.primitive.name} {name}" if isinstance(name, str) else str(eqn.primitive.name)


def _type(v: Any) -> str:
    return str(v.aval.str_short(short_dtypes=True))


def _line(eqn: core.JaxprEqn) -> str:
    """The user's ``file:line (function)``; a file below the current folder is relative to it."""
    line: str = source_info_util.summarize(eqn.source_info)
    if found := re.fullmatch(r"(.*?):(\d+):\d+( .*)?", line):
        file, number, function = found.groups("")
        line = f"{name_of_file(file)}:{number}{function}"
    return _shown(line.removeprefix(os.getcwd() + os.sep))

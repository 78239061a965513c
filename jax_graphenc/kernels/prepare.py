"""From a definition and the shapes of a call to the call as data."""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jax_graphenc.base.shapes import Array, Dim3
from jax_graphenc.calls import arguments
from jax_graphenc.calls import launch as launches
from jax_graphenc.calls.call import (
    MAX_PARAMETER_BYTES,
    NOT_OBSERVED,
    POINTER_BYTES,
    BatchingRule,
    CallParameter,
    KernelCall,
    Observed,
    Reference,
)
from jax_graphenc.calls.parameters import Parameter, hidden_pointers
from jax_graphenc.calls.values import Keywords, dtype_of_value, pack
from jax_graphenc.kernels import shape_functions
from jax_graphenc.kernels.definition import Definition, Launch
from jax_graphenc.signature.layouts import Struct


def prepare(
    definition: Definition,
    arrays: Sequence[Array],
    keywords: Keywords,
    observed: Observed = NOT_OBSERVED,
    *,
    out_shape: Any = None,
    launch: Launch | None = None,
) -> KernelCall:
    """A call with everything known but the addresses.

    Args:
        definition: of the kernel.
        arrays: shape and dtype of each input.
        keywords: the by-value parameters, without those that the definition gives.
        observed: what the options that watch kernels ask of it.
        out_shape: replaces the definition's.
        launch: likewise.

    Raises:
        TypeError, ValueError: as a call does.
    """
    name = definition.title
    _check_filled_in(definition)
    dtypes = [dtype for _, dtype in arrays]
    functions = _ShapeFunctions(definition, arrays, keywords)
    values = all_values(definition, arrays, keywords)
    with arguments.showing_call(name, definition.as_given(arrays)[0], keywords.values):
        check_call(definition, dtypes, values.values)
    spelled, parameters = definition.spelled(dtypes), definition.parameters(dtypes)
    inputs = dict(zip((p.name for p in parameters if p.is_input), arrays, strict=True))
    where = f"of kernel {spelled}"
    if out_shape is None:
        out_shape = functions.evaluate("out_shape", definition.out_shape, where, values)
    results = arguments.results(spelled, parameters, out_shape, inputs, name)
    outputs = zip((p.name for p in parameters if p.role in ("out", "inout")), results, strict=True)
    scratch = {
        p.name: arguments.scratch_array(
            spelled,
            p,
            functions.evaluate(f"scratch[{p.name!r}]", definition.scratch[p.name], where, values),
            name,
        )
        for p in parameters
        if p.role == "scratch"
    }
    known = {**inputs, **dict(outputs), **scratch}
    arguments.check_vectors(spelled, parameters, known)
    vmap, rule = definition.vmap, definition.sharding_rule
    remade = vmap in _REMADE or rule is not None
    return KernelCall(
        label=definition.label(dtypes),
        code=definition.code_for(dtypes),
        expression=definition.expression(dtypes),
        parameters=_bound(definition, parameters, known, values.values),
        results=results,
        **_evaluated(launch or definition.launch, functions, where, values),
        reference=definition.reference and Reference(definition.reference, values),
        cpu=definition.cpu,
        vmap=BatchingRule(vmap, values) if callable(vmap) else vmap,
        remake=_Remake(definition, keywords, observed) if remade else None,
        observed=observed,
        zero_init=tuple(definition.zero_init),
        alignment=definition.alignment,
        sharding=rule,
        scratch=tuple(scratch.values()),
    )


def _check_filled_in(definition: Definition) -> None:
    """Refuses a statement that ``python -m jax_graphenc inspect`` wrote and nothing has completed.

    Raises:
        ValueError: naming what is left.
    """
    launch = definition.launch
    given = {"out_shape": definition.out_shape, "grid": launch.grid, "block": launch.block}
    if left := [name for name, value in given.items() if value is ...]:
        raise ValueError(
            f"kernel '{definition.title}': {left[0]}=... is to be filled in, as its comment says"
        )


def all_values(definition: Definition, arrays: Sequence[Array], keywords: Keywords) -> Keywords:
    """The keywords of a call, with those that the definition's ``values=`` adds."""
    given = keywords.values
    missing = {k: v for k, v in definition.defaults.items() if k not in given}
    # A wrong number of inputs is refused as such, not by a function of the definition's.
    if not missing or len(arrays) != len(definition.inputs):
        return keywords
    functions = _ShapeFunctions(definition, arrays, keywords)
    found = dict(given)

    def find(name: str, path: tuple[str, ...]) -> None:
        """Finds a value, after those that it needs; ``path`` is what needs it."""
        if name in path:
            circle = " needs ".join(map(repr, (*path[path.index(name) :], name)))
            raise TypeError(
                f"kernel '{definition.title}': values= go in a circle: {circle}; give one of them "
                "in the call"
            )
        value = missing[name]
        if callable(value) and name not in found:
            needs = [need for need in shape_functions.asked_for(value) if need in missing]
            for need in needs:
                find(need, (*path, name))
            with functions.noting(f"in values[{name!r}] of kernel '{definition.title}'"):
                known = {**given, **{need: found[need] for need in needs}}
                value = functions.call(value, known, others=definition.defaults)
                found[name] = definition.scalars({name: value})[name]
        found.setdefault(name, value)

    for name in missing:
        find(name, ())
    return Keywords(found)


def check_call(
    definition: Definition, dtypes: Sequence[np.dtype[Any]], values: Mapping[str, Any]
) -> None:
    """Refuses wrong inputs and keywords.

    Raises:
        TypeError: naming them.
    """
    spelled, parameters = definition.spelled(dtypes), definition.parameters(dtypes)
    hint = hidden_pointers(definition.source, parameters, values)
    arguments.check_inputs(spelled, parameters, dtypes, hint)
    arguments.check_keywords(spelled, parameters, values)


class _ShapeFunctions:
    """Calls a definition's functions with the shapes of a call.

    Args:
        definition: whose functions they are.
        arrays: of the call.
        keywords: that the call was given, for notes on errors.
    """

    def __init__(self, definition: Definition, arrays: Sequence[Array], keywords: Keywords) -> None:
        self.definition = definition
        self._keywords = keywords
        # A copy's functions are its original's, and see traced values as types.
        structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in arrays]
        self._inputs, self._traced = definition.as_given(structs)

    def call(
        self,
        function: Callable[..., Any],
        values: Mapping[str, Any],
        block: Dim3 | None = None,
        others: Iterable[str] = (),
    ) -> Any:
        """A function's result; it may ask for the block and for macros as well."""
        offered: dict[str, Any] = {} if block is None else {"block": block}
        source = self.definition.source
        for macro, text in source.defines if source else ():
            try:
                offered[macro] = ast.literal_eval(text)
            except (SyntaxError, ValueError):
                offered[macro] = text
        names = [p.python_name for p in self.definition.shown.inputs]
        known = {**values, **self._traced}
        title = self.definition.title
        return shape_functions.call(title, function, names, self._inputs, known, offered, others)

    def evaluate(
        self, what: str, value: Any, where: str, values: Keywords, block: Dim3 | None = None
    ) -> Any:
        """An option of the definition that may be a function of shapes."""
        if not callable(value):
            return value
        with self.noting(f"in {what}= {where}"):
            return self.call(value, values.values, block)

    @contextlib.contextmanager
    def noting(self, where: str) -> Iterator[None]:
        """Notes on an error which function raised it, and in what call."""
        try:
            yield
        except Exception as error:
            shapes = [x if x is None else (x.shape, x.dtype) for x in self._inputs]
            keywords = {**self._keywords.values, **self._traced}
            note = f"{where}\n  {arguments.shown_call(self.definition.title, shapes, keywords)}"
            if self._traced:
                note += (
                    f"\n  {', '.join(self._traced)}: traced, so only shape and dtype are known "
                    "here; what shapes the launch must be a Python number (static_argnames of "
                    "jax.jit)"
                )
            error.add_note(note)
            raise


def _evaluated(
    given: Launch, functions: _ShapeFunctions, where: str, values: Keywords
) -> dict[str, Any]:
    """What a ``KernelCall`` has of a launch."""
    name = functions.definition.title
    block = launches.dim3(functions.evaluate("block", given.block, where, values), "block", name)

    def evaluate(what: str) -> Any:
        return functions.evaluate(what, getattr(given, what), where, values, block)

    grid, cluster = (launches.dim3(evaluate(what), what, name) for what in ("grid", "cluster"))
    launches.check_launch(grid, block, cluster, name)
    return {
        "grid": grid,
        "block": block,
        "cluster": cluster,
        "shared_bytes": launches.integer(evaluate("shared_mem"), "shared_mem", name),
        "cooperative": given.cooperative,
    }


def _bound(
    definition: Definition,
    parameters: Sequence[Parameter],
    arrays: Mapping[str, Array],
    values: Mapping[str, Any],
) -> tuple[CallParameter, ...]:
    """The parameters with what a call gives them."""
    loaded = definition.loaded
    bound = []
    for p in parameters:
        if p.role == "value" and not p.is_keyword:
            assert isinstance(p.layout, Struct)
            bound.append(CallParameter(p.name, p.role, p.type, None, bytes(p.layout.size)))
        elif p.role == "value":
            dtype = dtype_of_value(p.type, p.layout)
            value = pack(values[p.name], dtype, p.name, p.type, definition.title, p.layout)
            bound.append(CallParameter(p.name, p.role, p.type, dtype, value))
        elif p.role == "null":
            null = bytes(POINTER_BYTES)
            bound.append(CallParameter(p.name, p.role, str(p), None, null, member=p.member))
        else:
            shape, dtype = arrays[p.name]
            is_loaded = p.name in loaded
            bound.append(
                CallParameter(
                    p.name,
                    p.role,
                    str(p),
                    dtype,
                    size=math.prod(shape),
                    loaded=is_loaded,
                    member=p.member,
                )
            )
    _check_bytes(definition, bound)
    return tuple(bound)


def _check_bytes(definition: Definition, bound: Sequence[CallParameter]) -> None:
    sizes = {p.name: len(p.value) or POINTER_BYTES for p in bound if p.member is None}
    if (total := sum(sizes.values())) > MAX_PARAMETER_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise ValueError(
            f"kernel '{definition.title}' takes {total} bytes of parameters ('{largest}' alone "
            f"{sizes[largest]}); the limit is {MAX_PARAMETER_BYTES}"
        )


_REMADE = ("expand_dims", "broadcast_all")


@dataclass(frozen=True, slots=True)
class _Remake:
    """Makes a call of a kernel for other inputs."""

    definition: Definition
    keywords: Keywords
    observed: Observed

    def __call__(self, arrays: Sequence[Array], out_shape: Sequence[Any] | None) -> KernelCall:
        return prepare(self.definition, arrays, self.keywords, self.observed, out_shape=out_shape)

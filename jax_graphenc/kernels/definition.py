"""``Definition``: what is known of a kernel before it is called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jax_graphenc.calls.call import MAX_PARAMETERS, SLOT_BYTES, VMAP_METHODS, bare_name
from jax_graphenc.calls.code import Code, CudaSource, Prebuilt
from jax_graphenc.calls.parameters import Parameter, Role, describe, spell
from jax_graphenc.calls.sharding_rule import Rule
from jax_graphenc.calls.sharding_rule import parse as parse_sharding
from jax_graphenc.calls.structs import by_value
from jax_graphenc.compiler.source import Source
from jax_graphenc.signature.layouts import Layout, Opaque
from jax_graphenc.signature.types import header_of, spelling_of

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch dimensions and their like: values, or functions of shapes."""

    grid: Any
    block: Any
    shared_mem: Any = 0
    cluster: Any = 1
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class Original:
    """What a copy of a kernel was made of. Messages and the user's functions know only this.

    Attributes:
        definition: the user's.
        values: its by-value parameters that are operands of the copy.
        positions: of these operands, ascending.
        absent: places of its inputs that are no operands of the copy, ascending.
    """

    definition: Definition
    values: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()

    def split(self, operands: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The original's inputs, ``None`` for absent ones, and the values by name."""
        inputs = [x for i, x in enumerate(operands) if i not in self.positions]
        for i in self.absent:
            inputs.insert(i, None)
        at = zip(self.values, self.positions, strict=True)
        return inputs, {name: operands[i] for name, i in at}

    def join(self, inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
        """The inverse of ``split``."""
        operands = [x for i, x in enumerate(inputs) if i not in self.absent]
        for name, i in zip(self.values, self.positions, strict=True):
            operands.insert(i, values[name])
        return operands


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """What ``cuda_kernel`` was given, checked. ``dataclasses.replace`` checks anew.

    Attributes:
        name: of the kernel, where ``{x}`` stands for the C++ type of input ``x``.
        code: source or images.
        launch: its dimensions.
        out_shape: of the outputs that are not updated in place, or a function of shapes.
        params: what the user says of parameters, by name.
        values: by-value parameters that calls need not give, or functions of shapes.
        reference: the same function in jax.numpy, of the kernel's operands.
        zero_init: names of outputs and scratch memory that are zeroed before each launch.
        scratch: shape and dtype of scratch memory by the name of its parameter, or functions of
            shapes.
        alignment: of every array, in bytes.
        vmap: how a call is batched; a rule of the user's is one of the kernel's operands.
        cpu: ``"auto"``, ``"source"`` or ``"reference"``.
        sharding: the dimensions that may be split, as the user writes them or parsed.
        original: what this is a copy of; its shape functions are the original's. ``None`` for a
            kernel of the user's own.
        absent: names of inputs that are null pointers.
        described: the parameters, with placeholders for types that depend on dtypes; names and
            roles do not.
        value_names: of the by-value parameters.
        layouts: of by-value parameters whose types the source declares.
        title: the kernel's name in messages, without namespaces and template arguments.
        defaults: default arguments of the source, and ``values`` as scalars and functions.
        sharding_rule: ``sharding``, parsed; it says nothing of traced values.
    """

    name: str
    code: Code
    launch: Launch
    out_shape: Any
    params: Mapping[str, str]
    values: Mapping[str, Any]
    reference: Callable[..., Any] | None
    zero_init: Sequence[str]
    alignment: int
    vmap: str | Callable[..., Any] | None
    cpu: str
    sharding: str | Rule | None
    scratch: Mapping[str, Any] = field(default_factory=dict)
    original: Original | None = None
    absent: frozenset[str] = frozenset()
    described: tuple[Parameter, ...] = field(init=False)
    value_names: frozenset[str] = field(init=False)
    layouts: dict[str, Layout] = field(init=False)
    title: str = field(init=False)
    defaults: dict[str, Any] = field(init=False)
    sharding_rule: Rule | None = field(init=False)

    def __post_init__(self) -> None:
        """Checks all that can be wrong before a call."""

        def derive(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        derive("title", bare_name(self.shown.name))
        self._check_options()
        derive("zero_init", self._checked_zero_init())
        derive("scratch", self._checked_mapping())
        derive("described", self._describe(self.name))
        if len(self.described) > MAX_PARAMETERS:
            raise ValueError(
                f"kernel '{self.title}' has {len(self.described)} parameters; the limit is "
                f"{MAX_PARAMETERS}"
            )
        derive("value_names", frozenset(p.name for p in self.described if p.is_keyword))
        derive("layouts", {p.name: p.layout for p in self.described if p.layout})
        self._check_placeholders()
        self._check_scratch()
        self._check_outputs()
        derive("defaults", self._checked_values())
        derive("sharding_rule", self._parsed_sharding())

    def _describe(self, expression: str) -> tuple[Parameter, ...]:
        found = describe(self.source, expression, self.params)
        roles: dict[str, Role] = dict.fromkeys(self.absent, "null")
        roles.update(
            {p.name: "scratch" for p in found if p.name in self.scratch and p.role == "out"}
        )
        return tuple(replace(p, role=roles.get(p.name, p.role)) for p in found)

    # ------------------------------------------------------------------ checks

    def _check_options(self) -> None:
        where = f"kernel '{self.name}'"
        if self.vmap is not None and self.vmap not in VMAP_METHODS and not callable(self.vmap):
            raise ValueError(
                f"{where}: vmap={self.vmap!r}: {', '.join(map(repr, VMAP_METHODS))}, a function or "
                "None is expected"
            )
        if self.cpu not in ("auto", "source", "reference"):
            raise ValueError(
                f"{where}: cpu={self.cpu!r}: 'auto', 'source' or 'reference' is expected"
            )
        if self.cpu == "reference" and self.reference is None:
            raise ValueError(
                f"{where}: cpu='reference' needs reference=, the same function in jax.numpy"
            )
        alignment = self.alignment
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(
                f"{where}: alignment={alignment!r}: a power of two is expected, in bytes"
            )
        if alignment > SLOT_BYTES:
            raise ValueError(
                f"{where}: alignment={alignment}: at most {SLOT_BYTES} bytes are supported"
            )

    def _checked_mapping(self) -> dict[str, Any]:
        if not isinstance(self.scratch, Mapping):
            raise TypeError(
                f"kernel '{self.name}': scratch={self.scratch!r}: a mapping is expected, such as "
                "{'workspace': lambda x: x}"
            )
        return dict(self.scratch)

    def _checked_zero_init(self) -> tuple[str, ...]:
        names: Any = self.zero_init
        if not isinstance(names, Iterable):
            raise TypeError(
                f"kernel '{self.name}': zero_init={names!r}: the names of outputs are expected, "
                "such as zero_init=('out',)"
            )
        return (names,) if isinstance(names, str) else tuple(names)

    def _check_placeholders(self) -> None:
        inputs = [p.python_name for p in self.inputs]
        names = _PLACEHOLDER.findall(self.name)
        if set("{}") & set(_PLACEHOLDER.sub("", self.name)):
            raise ValueError(
                f"kernel name {self.name!r}: braces hold the name of an input, such as "
                f"'{bare_name(self.name)}<{{{(inputs or ['x'])[0]}}}>'"
            )
        if unknown := [name for name in names if name not in inputs]:
            raise ValueError(
                f"kernel name {self.name!r}: {unknown[0]!r} is no input; the inputs are "
                f"{', '.join(inputs) or 'none'}"
            )

    def _check_scratch(self) -> None:
        names = [p.name for p in self.described if p.role == "scratch"]
        if missing := [name for name in names if name not in self.scratch]:
            raise TypeError(
                f"kernel {self}: '{missing[0]}' is scratch memory of unknown size: say "
                f"scratch={{'{missing[0]}': jax.ShapeDtypeStruct(shape, dtype)}}, or a function of "
                "shapes that gives it"
            )
        if unknown := [name for name in self.scratch if name not in names]:
            raise ValueError(
                f"kernel {self}: scratch= names {unknown[0]!r}; scratch memory is what a pointer "
                "without const is to, and no array that the kernel updates in place"
            )

    def _check_outputs(self) -> None:
        if not any(p.role in ("out", "inout") for p in self.described):
            unknown = [
                f". What '{p.name}' points to is not known here: {p.layout.why}"
                for p in self.described
                if isinstance(p.layout, Opaque)
            ]
            raise TypeError(
                f"kernel {self} has no output: every pointer is const. Drop const from what it "
                "writes, or say which parameter it updates with params={'name': 'inout'}"
                f"{''.join(unknown)}"
            )
        pure = [p.name for p in self.described if p.role in ("out", "scratch")]
        if unknown := [name for name in self.zero_init if name not in pure]:
            raise ValueError(
                f"kernel {self}: zero_init= names {unknown[0]!r}; the outputs that can begin as "
                f"zeros are {', '.join(pure) or 'none'}"
            )

    def _checked_values(self) -> dict[str, Any]:
        if not isinstance(self.values, Mapping):
            raise TypeError(
                f"kernel '{self.title}': values={self.values!r}: a mapping is expected, such as "
                "{'n': lambda x: x.size}; got " + type(self.values).__name__
            )
        if unknown := [name for name in self.values if name not in self.value_names]:
            raise ValueError(
                f"kernel {self}: values= names {unknown[0]!r}; "
                f"the by-value parameters are {', '.join(sorted(self.value_names)) or 'none'}"
            )
        given = {
            p.name: p.default.value
            for p in self.described
            if p.role == "value" and p.default is not None and p.default.known
        }
        return {
            name: value if callable(value) else self.scalars({name: value})[name]
            for name, value in {**given, **self.values}.items()
        }

    def _parsed_sharding(self) -> Rule | None:
        if self.sharding is None or isinstance(self.sharding, Rule):
            return self.sharding
        inputs = [p.name for p in self.inputs]
        outputs = [p for p in self.described if p.role in ("out", "inout")]
        rule = parse_sharding(self.sharding, inputs, [p.name for p in outputs], str(self))
        pure = any(p.role == "out" for p in outputs)
        if rule.splits and pure and not callable(self.out_shape):
            raise TypeError(
                f"kernel {self}: with sharding=, out_shape= is a function of the inputs, since "
                "each device makes a part: out_shape=lambda x: x"
            )
        return rule

    # ------------------------------------------------------------------ signature

    @property
    def source(self) -> Source | None:
        """The source; ``None`` for a kernel that is given as an image."""
        return self.code.source if isinstance(self.code, CudaSource) else None

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The parameters that take an array of the caller's."""
        return tuple(p for p in self.described if p.is_input)

    @property
    def pointers(self) -> tuple[Parameter, ...]:
        """The parameters that take or give an array."""
        return tuple(p for p in self.described if p.role not in ("value", "null"))

    @property
    def loaded(self) -> frozenset[str]:
        """The pointers to by-value parameters of the original's."""
        positions = () if self.original is None else self.original.positions
        return frozenset(self.inputs[i].name for i in positions)

    def expression(self, dtypes: Sequence[np.dtype[Any]]) -> str:
        """The entry's name, with ``{x}`` replaced by the C++ type of input ``x``."""
        if "{" not in self.name:
            return self.name
        given = dict(zip((p.python_name for p in self.inputs), dtypes, strict=False))

        def spelled(match: re.Match[str]) -> str:
            # Where an input is missing, the placeholder stays, and the count is what is wrong.
            try:
                return spelling_of(given[match[1]]) if match[1] in given else match[0]
            except TypeError as error:
                raise TypeError(f"kernel '{self.title}': input '{match[1]}': {error}") from None

        return _PLACEHOLDER.sub(spelled, self.name)

    def parameters(self, dtypes: Sequence[np.dtype[Any]]) -> tuple[Parameter, ...]:
        """The kernel's parameters, for inputs of these dtypes."""
        return self._describe(self.expression(dtypes))

    def code_for(self, dtypes: Sequence[np.dtype[Any]]) -> Code:
        """The images, or the source with the headers of the types that ``{x}`` brought in."""
        if isinstance(self.code, Prebuilt) or "{" not in self.name:
            return self.code
        headers = {header for dtype in dtypes if dtype is not None and (header := header_of(dtype))}
        return CudaSource(replace(self.code.source, headers=tuple(sorted(headers))))

    # ------------------------------------------------------------------ by-value parameters

    def scalars(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """By-value arguments as Python or numpy scalars.

        Raises:
            TypeError: for what is none.
        """
        layouts = self.layouts
        return {
            name: by_value(value, name, self.title, layouts.get(name))
            for name, value in keywords.items()
        }

    # ------------------------------------------------------------------ in messages

    @property
    def shown(self) -> Definition:
        """The user's own definition."""
        return self if self.original is None else self.original.definition.shown

    def as_given(self, operands: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """What stands for operands in the user's call: inputs, and traced values by name."""
        if self.original is None:
            return operands, {}
        inputs, values = self.original.split(operands)
        given, further = self.original.definition.as_given(inputs)
        return given, {**values, **further}

    @property
    def traced_values(self) -> tuple[str, ...]:
        """The user's by-value parameters that are operands here."""
        if self.original is None:
            return ()
        return (*self.original.values, *self.original.definition.traced_values)

    def label(self, dtypes: Sequence[np.dtype[Any]]) -> str:
        """The kernel as the user knows it, for operands of these dtypes."""
        return self.shown.expression(self.as_given(dtypes)[0])

    def spelled(self, dtypes: Sequence[np.dtype[Any]]) -> str:
        """Its signature, likewise."""
        return spell(self.label(dtypes), self.shown.parameters(self.as_given(dtypes)[0]))

    def where(self, position: int) -> str:
        """An input, by its place in a call."""
        names = [f"'{p.name}'" for p in self.inputs]
        which = names[position] if position < len(names) else position
        return f"kernel '{self.title}': input {which}"

    def __str__(self) -> str:
        return spell(self.name, self.described)

"""``CudaKernel``: a kernel as a JAX function of arrays."""

from __future__ import annotations

import ast
import copy
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from jax_graphenc.base.options import current as current_options
from jax_graphenc.base.shapes import Array, Dim3
from jax_graphenc.base.tracebacks import ends_at_caller, shorten
from jax_graphenc.calls import arguments, launch
from jax_graphenc.calls import sharding_rule as sharding
from jax_graphenc.calls.call import (
    NOT_OBSERVED,
    SLOT_BYTES,
    BatchingRule,
    CallParameter,
    CudaSource,
    KernelCall,
    Observed,
    Prebuilt,
    Reference,
    bare_name,
)
from jax_graphenc.calls.parameters import (
    Parameter,
    describe,
    hidden_pointers,
    python_signature,
    spell,
)
from jax_graphenc.calls.values import Keywords, check_loadable, concrete, pack, traced_value_error
from jax_graphenc.compiler.files import FollowedSource, Version
from jax_graphenc.kernels import occupancy, shape_functions
from jax_graphenc.kernels.loading import (
    AsKeywords,
    Loaded,
    as_keywords,
    batching_rule,
    derivative_rule,
    without_derivative,
)
from jax_graphenc.primitives.batching import METHODS
from jax_graphenc.primitives.kernel import kernel_p
from jax_graphenc.signature.loaded import loaded_name, loaded_parameter, with_loaded_values
from jax_graphenc.signature.types import element_of, header_of, spelling_of

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class CudaKernel:
    """A kernel as a function of arrays; made by ``cuda_kernel``.

    Call it with the inputs by position, in the kernel's order, and its by-value parameters by
    keyword. It returns its outputs in the kernel's order: one array, or a tuple of them.
    """

    def __init__(
        self,
        code: CudaSource | Prebuilt,
        name: str,
        *,
        out_shape: Any,
        grid: Any,
        block: Any,
        shared_mem: Any,
        params: Mapping[str, str],
        reference: Callable[..., Any] | None,
        cluster: Any,
        cooperative: bool,
        zero_init: Sequence[str],
        alignment: int,
        vmap: str | Callable[..., Any] | None,
        cpu: str,
        values: Mapping[str, Any],
        sharding_rule: str | None,
        files: FollowedSource | None = None,
    ) -> None:
        if vmap is not None and vmap not in METHODS and not callable(vmap):
            raise ValueError(
                f"kernel '{name}': vmap={vmap!r}: {', '.join(map(repr, METHODS))}, a function or "
                "None is expected"
            )
        if cpu not in ("auto", "source", "reference"):
            raise ValueError(
                f"kernel '{name}': cpu={cpu!r}: 'auto', 'source' or 'reference' is expected"
            )
        if cpu == "reference" and reference is None:
            raise ValueError(
                f"kernel '{name}': cpu='reference' needs reference=, the same function in jax.numpy"
            )
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(
                f"kernel '{name}': alignment={alignment!r}: a power of two is expected, in bytes"
            )
        if alignment > SLOT_BYTES:
            raise ValueError(
                f"kernel '{name}': alignment={alignment}: at most {SLOT_BYTES} bytes can be had"
            )
        self.__name__ = bare_name(name)
        # Whose copy this is, and what it loads; messages are about the user's own kernel.
        self._copied: tuple[CudaKernel, Loaded] | None = None
        self._expression = name
        self._params = dict(params)
        self._out_shape = out_shape
        self._launch = {"grid": grid, "block": block, "shared_mem": shared_mem, "cluster": cluster}
        self._cooperative = cooperative
        if not isinstance(zero_init, Iterable):
            raise TypeError(
                f"kernel '{name}': zero_init={zero_init!r}: the names of outputs are expected, "
                "such as zero_init=('out',)"
            )
        self._zero_init = (zero_init,) if isinstance(zero_init, str) else tuple(zero_init)
        self._alignment = alignment
        self._reference = reference
        self._vmap = vmap
        self._cpu = cpu
        # (jvp,) or (fwd, bwd)
        self._rule: tuple[Callable[..., Any], ...] | None = None
        self._values = values
        self._sharding_rule = sharding_rule
        # The source's files; which version of them this is a kernel of; the latest and its kernel.
        self.files = files
        self._version = None if files is None else files.current()
        self._latest: tuple[Version, CudaKernel] | None = None
        self._make_cache()
        self._set_code(code)

    def _set_code(self, code: CudaSource | Prebuilt) -> None:
        self._code = code
        self._source = code.source if isinstance(code, CudaSource) else None
        # A wrong name or signature is an error here, not at the first call. Braces stand for types
        # that are not known yet; names and roles do not depend on them.
        self._generic = describe(self._source, self._expression, self._params)
        self._value_names = {p.name for p in self._generic if p.role == "value"}
        self._check_definition()
        self._defaults = self._check_values(self._values)
        rule = self._sharding_rule
        self._sharding = None if rule is None else self._check_sharding(rule)
        self.__doc__ = (
            f"{spell(self._expression, self._generic)}\n\nTakes inputs by position, values by "
            "keyword, and returns its outputs; made by jax_graphenc.cuda_kernel."
        )
        self.__signature__ = python_signature(self._generic, self._values)

    def current(self) -> CudaKernel:
        """The kernel of the files as they are now; itself while none has changed.

        Raises:
            Exception: what ``cuda_kernel`` raises, if a file has changed and no such kernel can be
                made of it.
        """
        if self.files is None or not self.files.has_files:
            return self
        version = self.files.current()
        if version is self._version:
            return self
        latest = self._latest
        if latest is None or latest[0] is not version:
            kernel = copy.copy(self)
            kernel.files = None
            kernel._set_code(CudaSource(version.source))
            self._latest = latest = version, kernel
            self.__doc__, self.__signature__ = kernel.__doc__, kernel.__signature__
        return latest[1]

    def _make_cache(self) -> None:
        # Bounded: a program that makes a new shape on every call must not grow for ever.
        self._specialized = functools.lru_cache(maxsize=1024)(self._specialize)
        self._loading = functools.lru_cache(maxsize=16)(self._make_loading)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        # A copy has specializations of its own.
        del state["_specialized"], state["_loading"]
        state["_latest"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_cache()

    def __repr__(self) -> str:
        known = self if self._latest is None else self._latest[1]
        return f"<cuda_kernel {spell(self._expression, known._generic)}>"

    def _check_definition(self) -> None:
        inputs = [p.name for p in self._generic if p.is_input]
        names = _PLACEHOLDER.findall(self._expression)
        if set("{}") & set(_PLACEHOLDER.sub("", self._expression)):
            raise ValueError(
                f"kernel name {self._expression!r}: braces hold the name of an input, such as "
                f"'{self.__name__}<{{{(inputs or ['x'])[0]}}}>'"
            )
        if unknown := [name for name in names if name not in inputs]:
            raise ValueError(
                f"kernel name {self._expression!r}: {unknown[0]!r} is no input; the inputs are "
                f"{', '.join(inputs) or 'none'}"
            )
        if not any(p.role in ("out", "inout") for p in self._generic):
            raise TypeError(
                f"kernel {spell(self._expression, self._generic)} has no output: every pointer is "
                "const. Drop const from what it writes, or say which parameter it updates with "
                "params={'name': 'inout'}"
            )
        pure = [p.name for p in self._generic if p.role == "out"]
        if unknown := [name for name in self._zero_init if name not in pure]:
            raise ValueError(
                f"kernel {spell(self._expression, self._generic)}: zero_init= names "
                f"{unknown[0]!r}; the outputs that can begin as zeros are "
                f"{', '.join(pure) or 'none'}"
            )

    def _check_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise TypeError(
                f"kernel '{self.__name__}': values={values!r}: a mapping is expected, such as "
                "{'n': lambda x: x.size}; got " + type(values).__name__
            )
        if unknown := [name for name in values if name not in self._value_names]:
            raise ValueError(
                f"kernel {spell(self._expression, self._generic)}: values= names {unknown[0]!r}; "
                f"the by-value parameters are {', '.join(sorted(self._value_names)) or 'none'}"
            )
        return {
            name: value if callable(value) else concrete(value, name, self.__name__)
            for name, value in values.items()
        }

    def _check_sharding(self, text: str) -> sharding.Rule:
        spelled = spell(self._expression, self._generic)
        inputs = [p.name for p in self._generic if p.is_input]
        outputs = [p for p in self._generic if p.role in ("out", "inout")]
        rule = sharding.parse(text, inputs, [p.name for p in outputs], spelled)
        pure = any(p.role == "out" for p in outputs)
        if rule.splits and pure and not callable(self._out_shape):
            raise TypeError(
                f"kernel {spelled}: with sharding=, out_shape= is a function of the inputs, since "
                "each device makes a part: out_shape=lambda x: x"
            )
        return rule

    # ------------------------------------------------------------------ signature

    def expression(self, dtypes: Sequence[np.dtype[Any]]) -> str:
        """The entry's name, with ``{x}`` replaced by the C++ type of input ``x``."""
        if "{" not in self._expression:
            return self._expression
        inputs = [p.name for p in self._generic if p.is_input]
        given = dict(zip(inputs, dtypes, strict=False))

        def spelled(match: re.Match[str]) -> str:
            # Where an input is missing, the placeholder stays, and the count is what is wrong.
            try:
                return spelling_of(given[match[1]]) if match[1] in given else match[0]
            except TypeError as error:
                raise TypeError(f"kernel '{self.__name__}': input '{match[1]}': {error}") from None

        return _PLACEHOLDER.sub(spelled, self._expression)

    def parameters(self, dtypes: Sequence[np.dtype[Any]]) -> tuple[Parameter, ...]:
        """The kernel's parameters, for inputs of these dtypes."""
        return describe(self._source, self.expression(dtypes), self._params)

    @property
    def pointers(self) -> tuple[Parameter, ...]:
        """The parameters that are no values; names and roles are the same for all dtypes."""
        return tuple(p for p in self._generic if p.role != "value")

    # ------------------------------------------------------------------ calls

    def __call__(self, /, *inputs: Any, **keywords: Any) -> Any:
        """Calls the kernel.

        Args:
            *inputs: an array for each input, in the kernel's order.
            **keywords: a value for each by-value parameter that ``values=`` does not give. One that
                Python cannot name is given as ``kernel(x, **{"lambda": 0.1})``.

        Returns:
            The output, or a tuple of the outputs in the kernel's order.

        Raises:
            TypeError: for a wrong number or dtype of inputs, or a wrong keyword.
            ValueError: for a launch that no device can make.
            KernelCompileError: when the call is lowered, if the source does not compile.
        """
        try:
            if (kernel := self.current()) is not self:
                return kernel(*inputs, **keywords)
            arrays = [
                x if isinstance(x, jax.Array) else arguments.as_array(x, self._where(i))
                for i, x in enumerate(inputs)
            ]
            shapes = tuple((x.shape, x.dtype) for x in arrays)
            if not keywords.keys() <= self._value_names:
                with arguments.showing_call(self.__name__, shapes, keywords):
                    arguments.check_keywords(
                        spell(self._expression, self._generic), self._generic, keywords
                    )
            traced = {k: x for k, x in keywords.items() if isinstance(x, jax.core.Tracer)}
            if traced:
                return self._call_loading(arrays, keywords, traced)
            values = Keywords(
                {k: concrete(value, k, self.__name__) for k, value in keywords.items()}
            )
            options = current_options()
            observed = Observed(options.debug, options.debug or options.time_kernels)
            function = self._specialized(shapes, values, observed, options.max_batch_nodes)
            return function(*arrays)
        except Exception as error:
            shorten(error)
            raise

    def _call_loading(
        self, inputs: Sequence[Any], keywords: Mapping[str, Any], traced: Mapping[str, Any]
    ) -> Any:
        """Calls a copy of the kernel that loads traced values from memory."""
        for name, value in traced.items():
            check_loadable(value, self._type_of(name), name, self.__name__)
        # A wrong call is held against the user's own signature, not the copy's.
        arrays = arguments.check_arrays([(x.shape, x.dtype) for x in inputs], self._where)
        known = [dtype for _, dtype in arrays]
        with arguments.showing_call(self.__name__, arrays, keywords):
            parameters = self.parameters(known)
            self._check_call(parameters, known, {**self._defaults, **keywords})
        # In the kernel's order, which the operands are to have.
        names = [p.name for p in self._generic if p.name in traced]
        dtypes = tuple((name, traced[name].dtype) for name in names)
        kernel, loaded = self._loading(dtypes)
        if self._rule is not None:
            traced = {
                name: without_derivative(value, name, self.__name__)
                if jax.numpy.issubdtype(value.dtype, jax.numpy.inexact)
                else value
                for name, value in traced.items()
            }
        rest = {name: value for name, value in keywords.items() if name not in traced}
        return kernel(*loaded.join(inputs, traced), **rest)

    def _check_call(
        self,
        parameters: Sequence[Parameter],
        dtypes: Sequence[np.dtype[Any]],
        values: Mapping[str, Any],
    ) -> None:
        spelled = spell(self._label(dtypes), parameters)
        hint = hidden_pointers(self._source, parameters, values)
        arguments.check_inputs(spelled, parameters, dtypes, hint)
        arguments.check_keywords(spelled, parameters, values)

    def _label(self, dtypes: Sequence[np.dtype[Any]]) -> str:
        """The kernel as the user knows it, for inputs of these dtypes."""
        if self._copied is None:
            return self.expression(dtypes)
        kernel, loaded = self._copied
        return kernel.expression(loaded.split(dtypes)[0])

    def _spelled(self, dtypes: Sequence[np.dtype[Any]], parameters: Sequence[Parameter]) -> str:
        """Its signature, likewise, which the compiler sees as ``parameters``."""
        if self._copied is None:
            return spell(self._label(dtypes), parameters)
        kernel, loaded = self._copied
        own = loaded.split(dtypes)[0]
        return spell(self._label(dtypes), kernel.parameters(own))

    def _type_of(self, name: str) -> str:
        return next(p.type for p in self._generic if p.name == name)

    def _make_loading(self, dtypes: tuple[tuple[str, Any], ...]) -> tuple[CudaKernel, Loaded]:
        """The same kernel with pointers to these by-value parameters, which are in memory."""
        if self._source is None:
            raise traced_value_error(
                self.__name__, dtypes[0][0], "which a kernel given as an image cannot load"
            )
        types = {name: spelling_of(dtype) for name, dtype in dtypes}
        try:
            text = with_loaded_values(self._source.text, self._expression, types, self._source.line)
        except ValueError as error:
            raise traced_value_error(
                self.__name__, dtypes[0][0], f"which the kernel cannot be made to load: {error}"
            ) from None
        headers = {header for _, dtype in dtypes if (header := header_of(dtype))}
        source = replace(
            self._source, text=text, headers=tuple(sorted({*self._source.headers, *headers}))
        )
        pointers = [p.name for p in self._generic if p.is_input or p.name in types]
        loaded = Loaded(tuple(types), tuple(pointers.index(name) for name in types))
        params = {
            loaded_parameter(name) if name in types else name: f"const {types[name]}*"
            if name in types
            else text
            for name, text in self._params.items()
        }
        kernel = CudaKernel(
            CudaSource(source),
            loaded_name(self._expression, types),
            out_shape=as_keywords(self._out_shape, loaded),
            **{what: as_keywords(value, loaded) for what, value in self._launch.items()},
            params=params,
            reference=self._reference and AsKeywords(self._reference, loaded),
            cooperative=self._cooperative,
            zero_init=self._zero_init,
            alignment=self._alignment,
            vmap=batching_rule(self._vmap, loaded) if callable(self._vmap) else self._vmap,
            cpu=self._cpu,
            values={
                name: as_keywords(value, loaded)
                for name, value in self._defaults.items()
                if name not in types
            },
            sharding_rule=None,
        )
        kernel.__name__ = self.__name__
        kernel._copied = self, loaded
        if self._sharding is not None:
            scalars = dict.fromkeys(loaded.names, ())
            inputs = tuple(loaded.join(self._sharding.inputs, scalars))
            kernel._sharding = replace(self._sharding, inputs=inputs)
        if self._rule is not None:
            kernel._set_rule(*derivative_rule(self._rule, loaded))
        return kernel, loaded

    def _where(self, position: int) -> str:
        names = [f"'{p.name}'" for p in self._generic if p.is_input]
        which = names[position] if position < len(names) else position
        return f"kernel '{self.__name__}': input {which}"

    def _specialize(
        self,
        shapes: tuple[tuple[tuple[Any, ...], Any], ...],
        keywords: Keywords,
        observed: Observed,
        max_batch_nodes: int,
    ) -> Callable[..., Any]:
        """The kernel for inputs of these shapes, as a jitted function with its derivative rule.

        One per specialization, since JAX's caches go by function: tracing a kernel for the second
        time then costs a tenth of the first.
        """
        arrays = arguments.check_arrays(shapes, self._where)
        call = replace(self.prepare(arrays, keywords, observed), max_batch_nodes=max_batch_nodes)
        if self._sharding is not None:
            sharding.check(self._sharding, arrays, call.results, self.__name__)
        values = self._all_values(arrays, keywords)

        def kernel(*inputs: Any) -> Any:
            return _unpack(kernel_p.bind(*inputs, call=call))

        kernel.__name__ = kernel.__qualname__ = self.__name__
        ruled = self._with_rule(kernel, call, values.values)

        def varying_alike(*inputs: Any) -> Any:
            return ruled(*_vary_alike(inputs))

        varying_alike.__name__ = varying_alike.__qualname__ = self.__name__
        return jax.jit(varying_alike)

    def prepare(
        self,
        arrays: Sequence[Array],
        keywords: Keywords,
        observed: Observed = NOT_OBSERVED,
        *,
        out_shape: Any = None,
        **launches: Any,
    ) -> KernelCall:
        """A call with everything known but the addresses.

        Args:
            arrays: shape and dtype of each input.
            keywords: the by-value parameters.
            observed: what the options that watch kernels ask of it.
            out_shape: replaces the definition's, as do ``grid``, ``block``, ``shared_mem``,
                ``cluster`` and ``cooperative``, which are values here.
            **launches: these.

        Raises:
            TypeError, ValueError: as a call does.
        """
        name, given_keywords = self.__name__, keywords
        keywords = self._all_values(arrays, keywords)
        values = keywords.values
        dtypes = [dtype for _, dtype in arrays]
        expression, parameters = self.expression(dtypes), self.parameters(dtypes)
        with arguments.showing_call(name, arrays, given_keywords.values):
            self._check_call(parameters, dtypes, values)
        spelled = self._spelled(dtypes, parameters)
        structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in arrays]

        block: Dim3 | None = None

        def evaluate(what: str, value: Any) -> Any:
            if not callable(value):
                return value
            try:
                return self._call_shape_function(value, structs, values, block)
            except Exception as error:
                self._note(error, f"in {what}= of kernel {spelled}", arrays, given_keywords)
                raise

        inputs = dict(zip((p.name for p in parameters if p.is_input), arrays, strict=True))
        given = {**self._launch, "cooperative": self._cooperative, **launches}
        if out_shape is None:
            out_shape = evaluate("out_shape", self._out_shape)
        results = arguments.results(spelled, parameters, out_shape, inputs, name)
        block = launch.dim3(evaluate("block", given["block"]), "block", name)
        grid, cluster = (
            launch.dim3(evaluate(what, given[what]), what, name) for what in ("grid", "cluster")
        )
        launch.check_launch(grid, block, cluster, name)
        shared_mem = evaluate("shared_mem", given["shared_mem"])

        outputs = iter(results)
        bound = []
        for p in parameters:
            if p.role == "value":
                element = element_of(p.type)
                dtype = element[0] if element and element[1] == 1 else None
                value = pack(values[p.name], dtype, p.name, p.type, name)
                bound.append(CallParameter(p.name, p.role, p.type, dtype, value))
            else:
                dtype = inputs[p.name][1] if p.role == "in" else next(outputs)[1]
                bound.append(CallParameter(p.name, p.role, str(p), dtype))
        remade = self._vmap in _REMADE or self._sharding is not None
        return KernelCall(
            label=self._label(dtypes),
            code=self.code(dtypes),
            expression=expression,
            parameters=tuple(bound),
            results=results,
            grid=grid,
            block=block,
            cluster=cluster,
            shared_bytes=launch.integer(shared_mem, "shared_mem", name),
            cooperative=given["cooperative"],
            reference=self._reference and Reference(self._reference, keywords),
            cpu=self._cpu,
            vmap=BatchingRule(self._vmap, keywords) if callable(self._vmap) else self._vmap,
            remake=_Remake(self, given_keywords, observed) if remade else None,
            observed=observed,
            zero_init=self._zero_init,
            alignment=self._alignment,
            sharding=self._sharding,
        )

    def _call_shape_function(
        self,
        function: Callable[..., Any],
        structs: Sequence[jax.ShapeDtypeStruct],
        values: Mapping[str, Any],
        block: Dim3 | None = None,
    ) -> Any:
        """A function of the definition's, which may ask for the block and for macros as well."""
        offered: dict[str, Any] = {} if block is None else {"block": block}
        for macro, text in self._source.defines if self._source else ():
            try:
                offered[macro] = ast.literal_eval(text)
            except (SyntaxError, ValueError):
                offered[macro] = text
        names = [p.name for p in self._generic if p.is_input]
        return shape_functions.call(function, names, structs, values, offered)

    def _note(
        self,
        error: Exception,
        where: str,
        arrays: Sequence[Array],
        keywords: Keywords,
    ) -> None:
        """Notes on an error which function of the definition raised it, and in what call."""
        loaded = self._copied[1] if self._copied else Loaded((), ())
        own, traced = loaded.split([jax.ShapeDtypeStruct(*array) for array in arrays])
        shapes = [(x.shape, x.dtype) for x in own]
        shown = arguments.shown_call(self.__name__, shapes, {**keywords.values, **traced})
        note = f"{where}\n  {shown}"
        if traced:
            note += (
                f"\n  {', '.join(traced)}: traced, so only shape and dtype are known here; what "
                "shapes the launch must be a Python number (static_argnames of jax.jit)"
            )
        error.add_note(note)

    def _all_values(self, arrays: Sequence[Array], keywords: Keywords) -> Keywords:
        """The keywords of a call, with those that the definition's ``values=`` adds."""
        missing = {k: v for k, v in self._defaults.items() if k not in keywords.values}
        # A wrong number of inputs is refused as such, not by a function of the definition's.
        if not missing or len(arrays) != sum(p.is_input for p in self._generic):
            return keywords
        structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in arrays]
        found = dict(keywords.values)
        for name, value in missing.items():
            if callable(value):
                try:
                    given = self._call_shape_function(value, structs, keywords.values)
                    value = concrete(given, name, self.__name__)
                except Exception as error:
                    where = f"in values[{name!r}] of kernel '{self.__name__}'"
                    self._note(error, where, arrays, keywords)
                    raise
            found[name] = value
        return Keywords(found)

    def varied(self, files: FollowedSource | None, launches: Mapping[str, Any]) -> CudaKernel:
        """A copy with another source of the same kernel, and another launch."""
        other = copy.copy(self)
        other._launch = {**self._launch, **launches}
        if files is not None:
            other.files, other._version = files, files.current()
            other._set_code(CudaSource(other._version.source))
        return other

    def code(self, dtypes: Sequence[np.dtype[Any]]) -> CudaSource | Prebuilt:
        """The images, or the source with the headers of the types that ``{x}`` brought in."""
        if isinstance(self._code, Prebuilt) or "{" not in self._expression:
            return self._code
        headers = {header for dtype in dtypes if (header := header_of(dtype))}
        return CudaSource(replace(self._code.source, headers=tuple(sorted(headers))))

    # ------------------------------------------------------------------ on a GPU

    def _on_device(self, inputs: Sequence[Any], device: jax.Device | None) -> occupancy.OnDevice:
        dtypes = occupancy.dtypes_of(inputs)
        kernel = self.current()
        code, expression = kernel.code(dtypes), kernel.expression(dtypes)
        return occupancy.on_device(code, expression, self.__name__, device)

    @ends_at_caller
    def attributes(
        self, *inputs: Any, device: jax.Device | None = None
    ) -> occupancy.KernelAttributes:
        """What the compiled kernel takes of a GPU: registers, spills, shared memory.

        Args:
            *inputs: arrays, or dtypes, for a kernel whose name has ``{x}``.
            device: ``jax.devices()[0]`` by default.

        Raises:
            UnsupportedOnCpuError: for a device that is no GPU.
            TypeError: if the inputs are needed.
        """
        return self._on_device(inputs, device).attributes()

    @ends_at_caller
    def occupancy(
        self, block: Any, *inputs: Any, shared_mem: int = 0, device: jax.Device | None = None
    ) -> occupancy.Occupancy:
        """How many blocks run on a multiprocessor at the same time, and how full it is with them.

        Args:
            block: threads in a block: an int or up to three.
            *inputs: arrays, or dtypes, for a kernel whose name has ``{x}``.
            shared_mem: dynamic shared memory per block, in bytes.
            device: ``jax.devices()[0]`` by default.

        Raises:
            UnsupportedOnCpuError: for a device that is no GPU.
            TypeError: if the inputs are needed.
            ValueError: for a block that no device can launch.
        """
        return self._on_device(inputs, device).occupancy(block, shared_mem)

    @ends_at_caller
    def suggest_block(
        self,
        *inputs: Any,
        shared_mem: int | Callable[[int], int] = 0,
        device: jax.Device | None = None,
    ) -> int:
        """A number of threads per block that keeps a multiprocessor as full as it can be.

        Full is not always fast; ``jge.autotune`` measures.

        Args:
            *inputs: arrays, or dtypes, for a kernel whose name has ``{x}``.
            shared_mem: dynamic shared memory per block, in bytes, or a function of the number of
                threads that gives it.
            device: ``jax.devices()[0]`` by default.

        Raises:
            UnsupportedOnCpuError: for a device that is no GPU.
            TypeError: if the inputs are needed.
            ValueError: if no block fits.
        """
        return self._on_device(inputs, device).suggest_block(shared_mem)

    # ------------------------------------------------------------------ derivatives

    @property
    def has_own_rule(self) -> bool:
        """Whether ``defvjp`` or ``defjvp`` was called."""
        return self._rule is not None

    @property
    def derivative(self) -> str | None:
        """Its derivative rule, which is ``"jvp"``, ``"vjp"``, or ``None`` without one."""
        if self._rule is None:
            return None if self._reference is None else "jvp"
        return "vjp" if len(self._rule) == 2 else "jvp"

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Sets the reverse-mode rule, as ``jax.custom_vjp`` takes it; it wins over ``reference``.

        Args:
            fwd: ``fwd(*inputs, **keywords) -> (outputs, residuals)``.
            bwd: ``bwd(residuals, cotangents, **keywords) -> a cotangent per input``.
        """
        self._set_rule(fwd, bwd)

    def defjvp(self, jvp: Callable[..., Any]) -> None:
        """Sets the forward-mode rule, as ``jax.custom_jvp`` takes it; it wins over ``reference``.

        Args:
            jvp: ``jvp(primals, tangents, **keywords) -> (outputs, output tangents)``.
        """
        self._set_rule(jvp)

    def _set_rule(self, *rule: Callable[..., Any]) -> None:
        self._rule = rule
        self._specialized.cache_clear()
        self._loading.cache_clear()
        if self._latest is not None:
            self._latest[1]._set_rule(*rule)

    def _with_rule(
        self, kernel: Callable[..., Any], call: KernelCall, values: Mapping[str, Any]
    ) -> Callable[..., Any]:
        if self._rule is not None:
            if len(self._rule) == 2:
                reverse = jax.custom_vjp(kernel)
                fwd, bwd = self._rule
                reverse.defvjp(
                    self._noting("fwd", fwd, values),
                    self._noting("bwd", self._counting_cotangents(bwd), values),
                )
                return reverse
            forward = jax.custom_jvp(kernel)
            forward.defjvp(self._noting("jvp", self._rule[0], values))
            return forward
        if call.reference is None:
            return kernel
        derived = jax.custom_jvp(kernel)

        @derived.defjvp
        def jvp(primals: Any, tangents: Any) -> Any:
            _, out = jax.jvp(lambda *xs: _unpack(call.run_reference(*xs)), primals, tangents)
            return derived(*primals), out

        return derived

    def _noting(
        self, what: str, rule: Callable[..., Any], values: Mapping[str, Any]
    ) -> Callable[..., Any]:
        """A derivative rule with the by-value parameters; its errors say whose it is."""

        def noting(*arrays: Any) -> Any:
            try:
                return rule(*arrays, **values)
            except Exception as error:
                traced = self._copied[1].names if self._copied else ()
                names = ", ".join((*values, *traced)) or "nothing"
                error.add_note(
                    f"in the rule {what} of kernel '{self.__name__}', which is given by keyword: "
                    f"{names}"
                )
                raise

        return noting

    def _counting_cotangents(self, bwd: Callable[..., Any]) -> Callable[..., Any]:
        kernel, traced = (self._copied[0], self._copied[1].names) if self._copied else (self, ())
        inputs = [p.name for p in kernel._generic if p.is_input]

        def counting(residuals: Any, cotangents: Any, **keywords: Any) -> Any:
            given = bwd(residuals, cotangents, **keywords)
            if isinstance(given, tuple | list) and len(given) == len(inputs) + len(traced):
                return given
            many = len(given) - len(traced) if isinstance(given, tuple | list) else "no tuple"
            raise TypeError(
                f"kernel '{self.__name__}': bwd is to return a tuple of cotangents, one for each "
                f"input ({', '.join(inputs)}); got {many}"
            )

        return counting


_REMADE = ("expand_dims", "broadcast_all")


@dataclass(frozen=True, slots=True)
class _Remake:
    """Makes a call of a kernel for other inputs."""

    kernel: CudaKernel
    keywords: Keywords
    observed: Observed

    def __call__(self, arrays: Sequence[Array], out_shape: Sequence[Any] | None) -> KernelCall:
        return self.kernel.prepare(arrays, self.keywords, self.observed, out_shape=out_shape)


def _vary_alike(inputs: Sequence[Any]) -> list[Any]:
    """Inputs that all vary over the mesh axes that any varies over, as ``jax.shard_map`` tells.

    Done outside of derivative rules, so that what a rule says of an input that does not vary is
    summed over the devices.
    """
    has = [jax.typeof(x).manual_axis_type.varying for x in inputs]
    axes = frozenset[Any]().union(*has)
    return [
        jax.lax.pcast(x, tuple(axes - of_x), to="varying") if axes - of_x else x
        for x, of_x in zip(inputs, has, strict=True)
    ]


def _unpack(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)

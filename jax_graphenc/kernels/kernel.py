"""``CudaKernel``: a kernel as a JAX function of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from jax_graphenc.base.options import current as current_options
from jax_graphenc.base.tracebacks import ends_at_caller, shorten
from jax_graphenc.calls import arguments, sharding_rule
from jax_graphenc.calls.call import Observed
from jax_graphenc.calls.code import CudaSource
from jax_graphenc.calls.parameters import python_signature
from jax_graphenc.calls.values import Keywords
from jax_graphenc.compiler.files import FollowedSource, Version
from jax_graphenc.devices.target import target_of
from jax_graphenc.kernels import absent, occupancy, traced_values
from jax_graphenc.kernels.copies import derivative_rule
from jax_graphenc.kernels.definition import Definition
from jax_graphenc.kernels.derivatives import Rule, with_derivative
from jax_graphenc.kernels.prepare import all_values, prepare
from jax_graphenc.primitives.kernel import kernel_p


class CudaKernel:
    """A kernel as a function of arrays; made by ``cuda_kernel``.

    Call it with the inputs by position, in the kernel's order, and its by-value parameters by
    keyword. It returns its outputs in the kernel's order: one array, or a tuple of them.
    """

    # Also takes its derivative rule, and the files of its source with their version that the
    # definition was made of.
    def __init__(
        self,
        definition: Definition,
        *,
        rule: Rule | None = None,
        files: FollowedSource | None = None,
        version: Version | None = None,
    ) -> None:
        self.definition = definition
        self._input_count = len(definition.inputs)
        self._rule = rule
        self.files = files
        self._version = version
        # The latest version of the files, and its kernel.
        self._latest: tuple[Version, CudaKernel] | None = None
        self.__name__ = definition.title
        self.__doc__ = (
            f"{definition}\n\nTakes inputs by position, values by "
            "keyword, and returns its outputs; made by jax_graphenc.cuda_kernel."
        )
        self.__signature__ = python_signature(definition.described, definition.defaults)
        self._make_caches()

    def _make_caches(self) -> None:
        # Bounded: a program that makes a new shape on every call must not grow for ever.
        self._specialized = functools.lru_cache(maxsize=1024)(self._specialize)
        self._loading = functools.lru_cache(maxsize=16)(self._make_loading)
        self.without = functools.lru_cache(maxsize=16)(self._make_without)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        # A copy has specializations of its own.
        del state["_specialized"], state["_loading"], state["without"]
        state["_latest"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_caches()

    def __repr__(self) -> str:
        known = self if self._latest is None else self._latest[1]
        return f"<cuda_kernel {known.definition}>"

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
            code = CudaSource(version.source)
            kernel = CudaKernel(replace(self.definition, code=code), rule=self._rule)
            self._latest = latest = version, kernel
            self.__doc__, self.__signature__ = kernel.__doc__, kernel.__signature__
        return latest[1]

    def varied(self, files: FollowedSource | None, launch: Mapping[str, Any]) -> CudaKernel:
        """A copy with another launch and, if given, another source of the same kernel."""
        definition = replace(self.definition, launch=replace(self.definition.launch, **launch))
        version = self._version
        if files is None:
            files = self.files
        else:
            version = files.current()
            definition = replace(definition, code=CudaSource(version.source))
        return CudaKernel(definition, rule=self._rule, files=files, version=version)

    # ------------------------------------------------------------------ calls

    def __getitem__(self, launch: Any) -> Any:
        """Refuses a launch in brackets, as other libraries have it.

        Raises:
            TypeError: always.
        """
        names = [p.name for p in self.definition.inputs]
        names += [f"{p.name}=..." for p in self.definition.described if p.is_keyword]
        raise TypeError(
            f"kernel '{self.__name__}': a launch is part of the definition, grid= and block= of "
            f"cuda_kernel: call it as {self.__name__}({', '.join(names)})"
        )

    def __call__(self, /, *inputs: Any, **keywords: Any) -> Any:
        """Calls the kernel.

        Args:
            *inputs: an array for each input, in the kernel's order. ``None`` is a null pointer; so
                are the last ones that a call leaves out, if the source gives them ``nullptr``.
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
            definition = self.definition
            given: Sequence[Any] = inputs
            if len(inputs) != self._input_count:
                given = absent.completed(definition, inputs)
            if any(x is None for x in given):
                return self._call_without(given, keywords)
            arrays = [
                x if isinstance(x, jax.Array) else arguments.as_array(x, definition.where(i))
                for i, x in enumerate(given)
            ]
            shapes = tuple((x.shape, x.dtype) for x in arrays)
            if not keywords.keys() <= definition.value_names:
                with arguments.showing_call(definition.title, shapes, keywords):
                    arguments.check_keywords(str(definition), definition.described, keywords)
            traced = {k: x for k, x in keywords.items() if isinstance(x, jax.core.Tracer)}
            if traced:
                return self._call_loading(arrays, keywords, traced)
            values = Keywords(definition.scalars(keywords))
            options = current_options()
            observed = Observed(options.debug, options.debug or options.time_kernels)
            function = self._specialized(shapes, values, observed, options.max_batch_nodes)
            return function(*arrays)
        except Exception as error:
            shorten(error)
            raise

    def _call_without(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Calls a copy of the kernel that has null pointers for what is ``None``."""
        definition = self.definition
        if len(inputs) != self._input_count:
            arguments.check_inputs(str(definition), definition.described, inputs, "")
        positions = absent.absent_in(definition, inputs)
        return self.without(positions)(*(x for x in inputs if x is not None), **keywords)

    def _make_without(self, positions: tuple[int, ...]) -> CudaKernel:
        definition = absent.without(self.definition, positions)
        assert definition.original is not None
        return CudaKernel(
            definition, rule=self._rule and derivative_rule(self._rule, definition.original)
        )

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
        definition = self.definition
        arrays = arguments.check_arrays(shapes, definition.where)
        call = prepare(definition, arrays, keywords, observed)
        call = replace(call, max_batch_nodes=max_batch_nodes)
        if call.sharding is not None:
            ruled = [x for x in definition.as_given(arrays)[0] if x is not None]
            sharding_rule.check(call.sharding, ruled, call.results, definition.title)
        values = all_values(definition, arrays, keywords).values

        def kernel(*inputs: Any) -> Any:
            return arguments.returned(kernel_p.bind(*inputs, call=call))

        kernel.__name__ = kernel.__qualname__ = definition.title
        differentiable = with_derivative(kernel, definition, self._rule, call, values)

        def varying_alike(*inputs: Any) -> Any:
            return differentiable(*_vary_alike(inputs))

        varying_alike.__name__ = varying_alike.__qualname__ = definition.title
        return jax.jit(varying_alike)

    def _call_loading(
        self, inputs: Sequence[Any], keywords: Mapping[str, Any], traced: Mapping[str, Any]
    ) -> Any:
        """Calls a copy of the kernel that loads traced values from memory."""
        kernel = self._loading(traced_values.loads_of(self.definition, inputs, keywords, traced))
        if self._rule is not None:
            traced = traced_values.without_derivatives(traced, self.definition.title)
        rest = {name: value for name, value in keywords.items() if name not in traced}
        original = kernel.definition.original
        assert original is not None
        return kernel(*original.join(inputs, traced), **rest)

    def _make_loading(self, loads: traced_values.Loads) -> CudaKernel:
        definition = traced_values.loading(self.definition, loads)
        assert definition.original is not None
        rule = self._rule and derivative_rule(self._rule, definition.original)
        return CudaKernel(definition, rule=rule)

    # ------------------------------------------------------------------ derivatives

    @property
    def has_own_rule(self) -> bool:
        """Whether ``defvjp`` or ``defjvp`` was called."""
        return self._rule is not None

    @property
    def derivative(self) -> str | None:
        """Its derivative rule, which is ``"jvp"``, ``"vjp"``, or ``None`` without one."""
        if self._rule is None:
            return None if self.definition.reference is None else "jvp"
        return "vjp" if len(self._rule) == 2 else "jvp"

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Sets the reverse-mode rule, as ``jax.custom_vjp`` takes it; it wins over ``reference``.

        Args:
            fwd: ``fwd(*inputs, **keywords) -> (outputs, residuals)``.
            bwd: ``bwd(residuals, cotangents, **keywords) -> a cotangent per input``.
        """
        self._set_rule((fwd, bwd))

    def defjvp(self, jvp: Callable[..., Any]) -> None:
        """Sets the forward-mode rule, as ``jax.custom_jvp`` takes it; it wins over ``reference``.

        Args:
            jvp: ``jvp(primals, tangents, **keywords) -> (outputs, output tangents)``.
        """
        self._set_rule((jvp,))

    def _set_rule(self, rule: Rule) -> None:
        self._rule = rule
        self._specialized.cache_clear()
        self._loading.cache_clear()
        self.without.cache_clear()
        if self._latest is not None:
            self._latest[1]._set_rule(rule)

    @ends_at_caller
    def source(self, target: str | None = None, *inputs: Any) -> str:
        """The text that is compiled: what is put before the source, and the source.

        Of a source that compiles only without its host code, the bodies of host functions are left
        out; the text begins with a list of them.

        Args:
            target: ``"cpu"``, or an architecture such as ``"sm_90a"``; by default what a call would
                be compiled for here.
            *inputs: arrays, or dtypes, for a kernel whose name has ``{x}``.

        Raises:
            TypeError: for a kernel that is given as an image, or if the inputs are needed.
            KernelCompileError: if it does not compile.
        """
        definition = self.current().definition
        dtypes = occupancy.dtypes_of(inputs)
        code = definition.code_for(dtypes)
        if not isinstance(code, CudaSource):
            raise TypeError(
                f"kernel '{definition.title}' is given as an image; only a source has a text"
            )
        expression = definition.expression(dtypes)
        if "{" in expression:
            raise TypeError(
                f"kernel '{definition.title}' depends on the dtypes of its inputs: pass an array "
                "or a dtype for each, as in kernel.source(None, x)"
            )
        if target is None:
            platform = "cuda" if jax.default_backend() == "gpu" else "cpu"
            (target, *_) = target_of(platform).architectures
        return code.text(expression, target)

    # ------------------------------------------------------------------ on a GPU

    def _on_device(self, inputs: Sequence[Any], device: jax.Device | None) -> occupancy.OnDevice:
        dtypes = occupancy.dtypes_of(inputs)
        definition = self.current().definition
        code, expression = definition.code_for(dtypes), definition.expression(dtypes)
        return occupancy.on_device(code, expression, definition.title, device)

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

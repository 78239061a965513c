"""``cuda_kernel``: CUDA C++ as a JAX function. ``kernel_call``: an image's entry as one."""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_graphenc import arguments
from jax_graphenc.call import (
    CallParameter,
    CudaSource,
    KernelCall,
    Prebuilt,
    Reference,
    Role,
)
from jax_graphenc.compiler import Source
from jax_graphenc.options import current as current_options
from jax_graphenc.primitives import kernel_p
from jax_graphenc.signature import element_of, header_of, holds, parse_signature, spelling_of

_IMAGE_SUFFIXES = (".ptx", ".cubin", ".fatbin")
_ROLES: dict[str, Role] = {"in": "in", "out": "out", "inout": "inout", "value": "value"}


def cdiv(a: int, b: int) -> int:
    """How many blocks of ``b`` cover ``a`` elements: ``a / b``, rounded up."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: its name, what the kernel does with it, and its C++ type.

    ``type`` is that of the element for a pointer and of the value otherwise.
    """

    name: str
    role: Role
    type: str

    def __str__(self) -> str:
        const = "const " if self.role == "in" else ""
        return f"{const}{self.type}{' ' if self.role == 'value' else '* '}{self.name}"


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
        vmap: str | None,
        cpu: str,
    ) -> None:
        if vmap not in (None, "sequential"):
            raise ValueError(f"vmap={vmap!r}: None or 'sequential' is expected")
        if cpu not in ("auto", "source", "reference"):
            raise ValueError(f"cpu={cpu!r}: 'auto', 'source' or 'reference' is expected")
        if cpu == "reference" and reference is None:
            raise ValueError("cpu='reference' needs reference=")
        self.__name__ = name.partition("<")[0].rpartition("::")[2]
        self._code = code
        self._expression = name
        self._params = dict(params)
        self._out_shape = out_shape
        self._launch = {"grid": grid, "block": block, "shared_mem": shared_mem, "cluster": cluster}
        self._cooperative = cooperative
        self._reference = reference
        self._vmap = vmap
        self._cpu = cpu
        # (jvp,) or (fwd, bwd)
        self._rule: tuple[Callable[..., Any], ...] | None = None
        # Bounded: a program that makes a new shape on every call must not grow for ever.
        self._specialized = functools.lru_cache(maxsize=1024)(self._specialize)
        # A wrong name or signature is an error here, not at the first call; types that the inputs
        # give are not known yet.
        if "{" not in name:
            self.parameters(())

    def __repr__(self) -> str:
        try:
            return f"<cuda_kernel {self.signature(())}>"
        except (TypeError, ValueError):
            return f"<cuda_kernel {self._expression}>"

    # ------------------------------------------------------------------ signature

    def expression(self, dtypes: Sequence[np.dtype[Any]]) -> str:
        """The entry's name, with ``{x}`` replaced by the C++ type of input ``x``."""
        if "{" not in self._expression:
            return self._expression
        types: dict[str, str] = {}
        for p, dtype in zip(self._operands(self._generic_parameters()), dtypes, strict=False):
            types[p.name] = spelling_of(dtype)
        try:
            return self._expression.format(**types)
        except (KeyError, IndexError) as error:
            raise ValueError(
                f"kernel name {self._expression!r}: {error.args[0]!r} is no input; the inputs are "
                f"{', '.join(types)}"
            ) from None

    def parameters(self, dtypes: Sequence[np.dtype[Any]]) -> tuple[Parameter, ...]:
        """The kernel's parameters, for inputs of these dtypes."""
        return self._parameters(self.expression(dtypes))

    def signature(self, dtypes: Sequence[np.dtype[Any]]) -> str:
        """The kernel's signature as C++ spells it."""
        return f"{self.expression(dtypes)}({', '.join(map(str, self.parameters(dtypes)))})"

    def _generic_parameters(self) -> tuple[Parameter, ...]:
        # Braces stand for a type that is not known yet; the names and roles do not depend on it.
        return self._parameters(self._expression)

    def _parameters(self, expression: str) -> tuple[Parameter, ...]:
        if isinstance(self._code, Prebuilt):
            return tuple(_declared(name, text) for name, text in self._params.items())
        source = self._code.source
        try:
            found = parse_signature(
                source.text,
                expression,
                defines=dict(source.defines),
                filename=source.filename,
                line=source.line,
            ).parameters
        except TypeError:
            # The user may know better than the parser: params= in full needs no signature.
            if self._params and all(v not in _ROLES for v in self._params.values()):
                return tuple(_declared(name, text) for name, text in self._params.items())
            raise
        parameters = [Parameter(p.name, p.role, p.type) for p in found]
        for name, text in self._params.items():
            at = [i for i, p in enumerate(parameters) if p.name == name]
            if not at:
                raise ValueError(
                    f"kernel '{self.__name__}': params= names {name!r}; the parameters are "
                    f"{', '.join(p.name for p in parameters)}"
                )
            if text in _ROLES:
                parameters[at[0]] = replace(parameters[at[0]], role=_ROLES[text])
            else:
                parameters[at[0]] = _declared(name, text)
        return tuple(parameters)

    @staticmethod
    def _operands(parameters: Sequence[Parameter]) -> list[Parameter]:
        return [p for p in parameters if p.role in ("in", "inout")]

    # ------------------------------------------------------------------ calls

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Calls the kernel.

        Args:
            *inputs: an array for each input, in the kernel's order.
            **keywords: a value for each by-value parameter.

        Returns:
            The output, or a tuple of the outputs in the kernel's order.

        Raises:
            TypeError: for a wrong number or dtype of inputs, or a wrong keyword.
            ValueError: for a launch that no device can make.
            KernelCompileError: when the call is lowered, if the source does not compile.
        """
        arrays = [jax.numpy.asarray(x) for x in inputs]
        shapes = tuple((x.shape, x.dtype) for x in arrays)
        values = {
            name: arguments.concrete(value, name, self.__name__) for name, value in keywords.items()
        }
        key = tuple((name, arguments.static_key(value)) for name, value in values.items())
        function = self._specialized(shapes, _Keywords(key, values), current_options().debug)
        return function(*arrays)

    def _specialize(
        self, shapes: tuple[tuple[tuple[int, ...], Any], ...], keywords: _Keywords, debug: bool
    ) -> Callable[..., Any]:
        """The kernel for inputs of these shapes, as a jitted function with its derivative rule.

        One per specialization, since JAX's caches go by function: tracing a kernel for the second
        time then costs a tenth of the first.
        """
        call = self._prepare(shapes, keywords.values, debug)

        def kernel(*inputs: Any) -> Any:
            return _unpack(kernel_p.bind(*inputs, call=call))

        kernel.__name__ = kernel.__qualname__ = self.__name__
        return jax.jit(self._with_rule(kernel, call, keywords.values))

    def _prepare(
        self,
        shapes: tuple[tuple[tuple[int, ...], Any], ...],
        values: Mapping[str, Any],
        debug: bool,
    ) -> KernelCall:
        structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
        dtypes = [np.dtype(dtype) for _, dtype in shapes]
        expression = self.expression(dtypes)
        parameters = self._parameters(expression)
        self._check_arguments(parameters, dtypes, values, expression)

        def evaluate(what: str, value: Any) -> Any:
            if not callable(value):
                return value
            try:
                return value(*structs, **values)
            except Exception as error:
                error.add_note(f"in {what}= of kernel {self.signature(dtypes)}")
                raise

        operands = {
            p.name: (shape, np.dtype(dtype))
            for p, (shape, dtype) in zip(self._operands(parameters), shapes, strict=True)
        }
        results = self._results(
            parameters, evaluate("out_shape", self._out_shape), operands, expression
        )
        grid, block, cluster = (
            arguments.dim3(evaluate(what, self._launch[what]), what, self.__name__)
            for what in ("grid", "block", "cluster")
        )
        arguments.check_launch(grid, block, cluster, self.__name__)
        shared_mem = evaluate("shared_mem", self._launch["shared_mem"])

        reference = self._reference and Reference(self._reference, tuple(values.items()))
        outputs = iter(results)
        bound = []
        for p in parameters:
            element = element_of(p.type)
            if p.role == "value":
                dtype = element[0] if element and element[1] == 1 else None
                value = arguments.pack(values[p.name], dtype, p.name, p.type, self.__name__)
                bound.append(CallParameter(p.name, p.role, p.type, dtype, value))
                continue
            dtype = operands[p.name][1] if p.role == "in" else next(outputs)[1]
            bound.append(CallParameter(p.name, p.role, str(p), dtype))
        return KernelCall(
            label=expression,
            code=self._with_headers(dtypes),
            expression=expression,
            parameters=tuple(bound),
            results=results,
            grid=grid,
            block=block,
            cluster=cluster,
            shared_bytes=arguments.dim3(shared_mem, "shared_mem", self.__name__)[0],
            cooperative=self._cooperative,
            reference=reference,
            cpu=self._cpu,
            vmap=self._vmap,
            uncaptured=debug,
        )

    def _with_headers(self, dtypes: Sequence[np.dtype[Any]]) -> CudaSource | Prebuilt:
        """The source, with the headers of the types that ``{x}`` brought in."""
        if isinstance(self._code, Prebuilt) or "{" not in self._expression:
            return self._code
        headers = {header for dtype in dtypes if (header := header_of(dtype))}
        return CudaSource(replace(self._code.source, headers=tuple(sorted(headers))))

    def _check_arguments(
        self,
        parameters: Sequence[Parameter],
        dtypes: Sequence[np.dtype[Any]],
        values: Mapping[str, Any],
        expression: str,
    ) -> None:
        signature = f"{expression}({', '.join(map(str, parameters))})"
        operands = self._operands(parameters)
        if len(operands) != len(dtypes):
            names = ", ".join(p.name for p in operands) or "none"
            raise TypeError(
                f"kernel {signature} takes {len(operands)} inputs ({names}); got {len(dtypes)}"
            )
        for p, dtype in zip(operands, dtypes, strict=True):
            if not holds(p.type, dtype):
                raise TypeError(
                    f"kernel {signature}: input '{p.name}' points to {p.type}; got {dtype}. "
                    "Convert it with .astype(...), or take {x} in the name for any dtype"
                )
        wanted = [p.name for p in parameters if p.role == "value"]
        if missing := [name for name in wanted if name not in values]:
            raise TypeError(f"kernel {signature}: keyword {', '.join(missing)} is missing")
        if surplus := [name for name in values if name not in wanted]:
            raise TypeError(
                f"kernel {signature}: {', '.join(surplus)} is no by-value parameter; they are: "
                f"{', '.join(wanted) or 'none'}"
            )

    def _results(
        self,
        parameters: Sequence[Parameter],
        out_shape: Any,
        operands: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]],
        expression: str,
    ) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        signature = f"{expression}({', '.join(map(str, parameters))})"
        pure = [p for p in parameters if p.role == "out"]
        given = () if out_shape is None else arguments.as_results(out_shape, self.__name__)
        if len(given) != len(pure):
            names = ", ".join(p.name for p in pure) or "none"
            raise TypeError(
                f"kernel {signature} has {len(pure)} outputs that need a shape ({names}); "
                f"out_shape gives {len(given)}"
            )
        shapes = iter(given)
        results = []
        for p in parameters:
            if p.role == "inout":
                results.append(operands[p.name])
            elif p.role == "out":
                shape, dtype = next(shapes)
                if not holds(p.type, dtype):
                    raise TypeError(
                        f"kernel {signature}: output '{p.name}' points to {p.type}; out_shape "
                        f"says {dtype}"
                    )
                results.append((shape, dtype))
        if not results:
            raise TypeError(
                f"kernel {signature} has no output: every pointer is const. Drop const from what "
                "it writes, or say which parameter it updates with params={'name': 'inout'}"
            )
        return tuple(results)

    # ------------------------------------------------------------------ derivatives

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

    def _with_rule(
        self, kernel: Callable[..., Any], call: KernelCall, values: Mapping[str, Any]
    ) -> Callable[..., Any]:
        if self._rule is not None:
            given = [functools.partial(rule, **values) for rule in self._rule]
            if len(given) == 2:
                reverse = jax.custom_vjp(kernel)
                reverse.defvjp(given[0], given[1])
                return reverse
            forward = jax.custom_jvp(kernel)
            forward.defjvp(given[0])
            return forward
        if call.reference is None:
            return kernel
        derived = jax.custom_jvp(kernel)

        @derived.defjvp
        def jvp(primals: Any, tangents: Any) -> Any:
            _, out = jax.jvp(lambda *xs: _unpack(call.run_reference(*xs)), primals, tangents)
            return derived(*primals), out

        return derived


def _unpack(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


@dataclass(frozen=True, eq=False, slots=True)
class _Keywords:
    """Keyword values, hashed and compared by a key that tells -0.0 from 0.0 and 1 from True."""

    key: Any
    values: dict[str, Any]

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keywords) and self.key == other.key


def _declared(name: str, text: str) -> Parameter:
    """A parameter from what ``params=`` says of it, such as ``"inout float*"``."""
    first, _, rest = text.strip().partition(" ")
    role = _ROLES.get(first)
    words = (rest if role else text).replace("*", " * ").split()
    pointer = words[-1:] == ["*"]
    base = " ".join(word for word in words if word not in ("*", "const", "volatile"))
    if role is None:
        role = ("in" if "const" in words else "out") if pointer else "value"
    if not base or words.count("*") > 1 or pointer == (role == "value"):
        raise ValueError(
            f"params={{{name!r}: {text!r}}}: a C++ type is expected, a value or a pointer to one, "
            "such as 'const float*', 'inout float*' or 'int'"
        )
    return Parameter(name, role, base)


def cuda_kernel(
    source: str | Path | bytes | Mapping[str, bytes],
    name: str,
    *,
    out_shape: Any = None,
    grid: Any,
    block: Any,
    shared_mem: Any = 0,
    params: Mapping[str, str] | None = None,
    reference: Callable[..., Any] | None = None,
    cluster: Any = 1,
    cooperative: bool = False,
    vmap: str | None = None,
    cpu: str = "auto",
    defines: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> CudaKernel:
    """Makes a JAX function of a ``__global__`` function.

    Parameters take their roles from the C++ signature: ``const T*`` is an input, ``T*`` an output,
    a by-value arithmetic type or struct a keyword argument that must be known when the call is
    traced. The source is compiled when a call is lowered: with NVRTC for a GPU, with the machine's
    C++ compiler for the CPU; compiled kernels are kept on disk.

    ``out_shape``, ``grid``, ``block``, ``shared_mem`` and ``cluster`` are values, or functions that
    are called with a ``jax.ShapeDtypeStruct`` for each input and the keywords of the call.

    Args:
        source: CUDA C++ text, or a ``Path`` to a .cu file; a ``Path`` to a .ptx, .cubin or .fatbin
            file, the bytes of one, or images by platform, ``{"cuda": ..., "cpu": ...}``.
        name: an ``extern "C"`` name, or a function or template instance as C++ writes it, where
            ``{x}`` stands for the C++ type of input ``x``: ``"scale<{x}>"``.
        out_shape: shape and dtype of the output, or a sequence of them, in the kernel's order;
            parameters that are updated in place need none.
        grid: blocks in the grid: an int or up to three. A zero launches nothing.
        block: threads in a block: an int or up to three, 1024 at most in all.
        shared_mem: dynamic shared memory per block, in bytes. More than 48 KB is opted in by
            itself, up to the device's limit.
        params: by name, a role or a C++ type that overrides the signature's: ``"inout"`` for what
            is updated in place, ``"const float*"`` where a typedef hides a pointer,
            ``"inout float*"`` for both. Images need it in full, in the kernel's order.
        reference: the same function in jax.numpy, ``reference(*inputs, **keywords)``. Gives
            derivatives, and stands in on the CPU where the source cannot run.
        cluster: blocks in a thread block cluster.
        cooperative: whether all blocks must be on the device at the same time.
        vmap: ``"sequential"`` launches the kernel once per element of a batch; ``None`` refuses to
            be batched.
        cpu: what runs on the CPU: ``"source"``, ``"reference"``, or ``"auto"``: the source where it
            can run, else the reference.
        defines: preprocessor macros.
        options: further options for NVRTC.

    Returns:
        A function of the inputs (by position) and by-value parameters (by keyword) that returns the
        outputs in the kernel's order: an array, or a tuple of several. It composes with
        ``jax.jit``, and has ``defvjp`` and ``defjvp`` for rules of your own.

    Raises:
        ValueError: if the source has no such kernel; the message lists those that are there.
        TypeError: if a parameter is neither a value nor a pointer to values.
    """
    code: CudaSource | Prebuilt
    path = source if isinstance(source, Path) else None
    if path is not None and path.suffix in _IMAGE_SUFFIXES:
        source = path.read_bytes()
    if isinstance(source, bytes):
        source = {"cuda": source}
    if isinstance(source, Mapping):
        code = Prebuilt(tuple(sorted(source.items())))
        if not params:
            raise ValueError(
                f"kernel '{name}' is given as an image, which does not tell what its parameters "
                "are: list all of them, params={'x': 'const float*', 'out': 'float*', 'n': 'int'}"
            )
    else:
        if path is not None:
            text, filename, line = path.read_text(encoding="utf-8"), str(path.absolute()), 1
        else:
            text = str(source)
            filename, line = _find_in_caller(text, f"<{name}>")
        code = CudaSource(
            Source(
                text,
                filename,
                line,
                tuple(sorted((k, str(v)) for k, v in (defines or {}).items())),
                tuple(options),
            )
        )
    return CudaKernel(
        code,
        name,
        out_shape=out_shape,
        grid=grid,
        block=block,
        shared_mem=shared_mem,
        params=params or {},
        reference=reference,
        cluster=cluster,
        cooperative=cooperative,
        vmap=vmap,
        cpu=cpu,
    )


def kernel_call(
    image: bytes | Mapping[str, bytes],
    entry: str,
    *,
    params: Mapping[str, str],
    out_shape: Any,
    grid: Any,
    block: Any,
    shared_mem: Any = 0,
    cluster: Any = 1,
    cooperative: bool = False,
) -> CudaKernel:
    """Makes a JAX function of an entry of a compiled image: no source, everything explicit.

    Args:
        image: a cubin, PTX or fatbin, or images by platform, ``{"cuda": ..., "cpu": ...}``.
        entry: the name in the image (for C++, the mangled one).
        params: every parameter's C++ type by name, in the kernel's order, as ``cuda_kernel`` takes
            it: ``{"x": "const float*", "u": "inout float*", "out": "float*", "n": "int"}``.
        out_shape: as ``cuda_kernel`` takes it.
        grid: blocks in the grid.
        block: threads in a block.
        shared_mem: dynamic shared memory per block, in bytes.
        cluster: blocks in a thread block cluster.
        cooperative: whether all blocks must be on the device at the same time.

    Returns:
        A function as ``cuda_kernel`` returns it.
    """
    return cuda_kernel(
        image if isinstance(image, bytes) else dict(image),
        entry,
        params=params,
        out_shape=out_shape,
        grid=grid,
        block=block,
        shared_mem=shared_mem,
        cluster=cluster,
        cooperative=cooperative,
    )


def _find_in_caller(text: str, otherwise: str) -> tuple[str, int]:
    """File and line of a source that stands in its caller's file, so that errors point there."""
    filename = sys._getframe(2).f_code.co_filename
    before, found, _ = "".join(linecache.getlines(filename)).partition(text)
    if not text or not found:
        return otherwise, 1
    return filename, before.count("\n") + 1

"""One call of one kernel, with everything known but the addresses."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from jax_graphenc.base.shapes import Array, Dim3
from jax_graphenc.calls.code import Code
from jax_graphenc.calls.parameters import Member, Role
from jax_graphenc.calls.sharding_rule import Rule
from jax_graphenc.calls.values import Keywords

SLOT_BYTES = 256
"""Memory of a program's own begins at multiples of this, which suits every load that CUDA has."""

VMAP_METHODS = ("nodes", "sequential", "expand_dims", "broadcast_all")
"""What ``vmap=`` can be, beside ``None`` and a function."""

POINTER_BYTES = 8
MAX_PARAMETERS = 320  # demanglers of C++ names give up on more
MAX_PARAMETER_BYTES = 32764  # CUDA's, from compute capability 7.0 on

DEFAULT_VMAP = "nodes"
DEFAULT_ALIGNMENT = 16  # bytes: float4, the widest load


def bare_name(expression: str) -> str:
    """``f`` of ``ns::f<float>``."""
    return expression.partition("<")[0].rpartition("::")[2].strip()


@dataclass(frozen=True, slots=True)
class CallParameter:
    """A parameter of the kernel in one call.

    Attributes:
        name: as the source calls it.
        role: what the kernel does with it.
        declared: the C++ type as the user or the signature gives it, for messages.
        dtype: of the array behind a pointer, or of the value; ``None`` for a type that only the
            compiler knows.
        value: the bytes of a by-value parameter, or of a null pointer.
        size: elements of the array behind a pointer; where they form vectors is checked.
        loaded: whether it points to a by-value parameter of the user's, which the kernel loads.
        member: where it is in a struct that is passed by value; ``None`` for a parameter of the
            kernel.
    """

    name: str
    role: Role
    declared: str
    dtype: np.dtype[Any] | None
    value: bytes = b""
    size: int = 0
    loaded: bool = False
    member: Member | None = None

    @property
    def has_array(self) -> bool:
        """Whether it is a pointer to memory that a program knows."""
        return self.role not in ("value", "null")


@dataclass(frozen=True, slots=True)
class Reference:
    """The same function in jax.numpy, with its keywords."""

    function: Callable[..., Any]
    keywords: Keywords


@dataclass(frozen=True, slots=True)
class BatchingRule:
    """A rule of the user's for ``jax.vmap``, with the call's keywords."""

    function: Callable[..., Any]
    keywords: Keywords


class Observed(NamedTuple):
    """What the options that watch kernels ask of a call.

    Attributes:
        checked: what runs on the CPU is checked while it runs (``debug``).
        uncaptured: it stays out of XLA's command buffers (``debug``, ``time_kernels``).
    """

    checked: bool = False
    uncaptured: bool = False


NOT_OBSERVED = Observed()


@dataclass(frozen=True, slots=True, repr=False)
class KernelCall:
    """A kernel call as the equation's parameter carries it: hashed and compared by content.

    Attributes:
        label: the kernel's name as the user knows it.
        code: source or images.
        expression: the entry: a function's name or a template instance.
        parameters: in the kernel's order.
        results: shape and dtype of each output, in the kernel's order.
        grid: blocks in the grid; one with a zero launches nothing.
        block: threads in a block.
        cluster: blocks in a cluster.
        shared_bytes: dynamic shared memory per block.
        cooperative: whether all blocks must run at the same time.
        reference: stands in on the CPU where the source cannot run; ``None`` without one.
        cpu: ``"auto"``, ``"source"`` or ``"reference"``.
        vmap: how it is batched: a name that ``cuda_kernel`` takes, a rule, or ``None``.
        remake: the same call for inputs of other shapes, from these and the outputs that are not
            updated in place, or ``None`` for what the definition says of those; for
            ``"expand_dims"``, ``"broadcast_all"`` and calls that may be split only.
        max_batch_nodes: launches that a batch may become at once.
        observed: what the options that watch kernels ask of it.
        zero_init: names of outputs and scratch memory that are zeroed before the kernel runs.
        alignment: of every array, in bytes; what is not aligned is copied.
        batch: (size, which operands have it) for each dimension that ``jax.vmap`` added, the
            outermost first; the kernel is launched for each element. Operands and outputs have
            these dimensions in front.
        sharding: which dimensions may be split over devices; ``None`` if none may.
        scratch: shape and dtype of each scratch parameter, in the kernel's order. Each element of
            the batch has its own.
    """

    label: str
    code: Code
    expression: str
    parameters: tuple[CallParameter, ...]
    results: tuple[Array, ...]
    grid: Dim3
    block: Dim3
    cluster: Dim3 = (1, 1, 1)
    shared_bytes: int = 0
    cooperative: bool = False
    reference: Reference | None = None
    cpu: str = "auto"
    vmap: str | BatchingRule | None = DEFAULT_VMAP
    remake: Callable[[Sequence[Array], Sequence[Any] | None], KernelCall] | None = None
    max_batch_nodes: int = 256
    observed: Observed = NOT_OBSERVED
    zero_init: tuple[str, ...] = ()
    alignment: int = DEFAULT_ALIGNMENT
    batch: tuple[tuple[int, tuple[bool, ...]], ...] = ()
    sharding: Rule | None = None
    scratch: tuple[Array, ...] = ()

    @property
    def name(self) -> str:
        """The function's name, without namespaces and template arguments."""
        return bare_name(self.label)

    def __repr__(self) -> str:
        """One short line, as jaxprs show it: ``axpy<<<4, 256>>>(x, y, out, a=2.0, n=1000)``."""
        given = ", ".join(map(_shown, self.parameters))
        sizes = " x ".join(str(size) for size, _ in self.batch)
        launch = f"{self.label}<<<{_dims(self.grid)}, {_dims(self.block)}>>>({given})"
        return f"{launch} for each of {sizes}" if sizes else launch

    def operands(self) -> tuple[CallParameter, ...]:
        """Parameters that take an array of the caller's."""
        return tuple(p for p in self.parameters if p.role in ("in", "inout"))

    def outputs(self) -> tuple[CallParameter, ...]:
        """Parameters that give an array back."""
        return tuple(p for p in self.parameters if p.role in ("out", "inout"))

    def scratch_parameters(self) -> tuple[CallParameter, ...]:
        """Parameters that point to memory of the program's own."""
        return tuple(p for p in self.parameters if p.role == "scratch")

    def batched_results(self) -> tuple[Array, ...]:
        """Shape and dtype of each output, with the dimensions of the batch in front."""
        front = tuple(size for size, _ in self.batch)
        return tuple((front + shape, dtype) for shape, dtype in self.results)

    def batch_elements(self) -> list[int]:
        """How many elements of the batch each operand, then each output, has."""
        whole = math.prod(size for size, _ in self.batch)
        operands = [
            math.prod(size for size, mask in self.batch if mask[i])
            for i in range(len(self.operands()))
        ]
        return operands + [whole] * len(self.results)

    def elements_are_aligned(self, operand_bytes: Sequence[int]) -> bool:
        """Whether every element of the batch is aligned where it is, from the operands' sizes.

        No load is wider than the array, so that a small one needs no more than its size.
        """
        results = [math.prod(shape) * dtype.itemsize for shape, dtype in self.batched_results()]
        return not any(
            bytes // n % min(self.alignment, 1 << (bytes // n).bit_length() - 1)
            for bytes, n in zip((*operand_bytes, *results), self.batch_elements(), strict=True)
            if n > 1 and bytes
        )

    def node_count(self, operand_bytes: Sequence[int]) -> int:
        """Nodes that the call adds to a program, at most, from the sizes of its operands."""
        launches: int = math.prod(size for size, _ in self.batch)
        results, aliases = self.results, self.aliases()
        if not self.elements_are_aligned(operand_bytes):
            # Of each element, operands and outputs are copied, and what outputs begin as.
            begun = len(self.zero_init) + len(aliases)
            return launches * (1 + len(operand_bytes) + len(results) + begun)
        # An operand that is updated in place has as many copies as the output has elements.
        elements = self.batch_elements()
        shared = sum(elements[i] < launches for i in aliases)
        return launches * (1 + shared) + 2 * len(results)

    def run_reference(self, *inputs: Any) -> tuple[Any, ...]:
        """The reference's outputs, in the kernel's order, mapped over the batch.

        Raises:
            TypeError: if it returns other shapes or dtypes than the kernel.
        """
        function = self._run_reference_once
        for size, mask in reversed(self.batch):
            axes = [0 if m else None for m in mask]
            function = jax.vmap(function, axes, axis_size=size)
        return function(*inputs)

    def _run_reference_once(self, *inputs: Any) -> tuple[Any, ...]:
        assert self.reference is not None
        try:
            out = self.reference.function(*inputs, **self.reference.keywords.values)
        except Exception as error:
            error.add_note(f"in reference= of kernel '{self.label}'")
            raise
        outs = out if isinstance(out, tuple | list) else (out,)
        outs = tuple(map(jax.numpy.asarray, outs))
        given = tuple((x.shape, x.dtype) for x in outs)
        if given != self.results:
            raise TypeError(
                f"kernel '{self.label}': its reference returns {_describe(given)}; the kernel "
                f"returns {_describe(self.results)}"
            )
        return outs

    def aliases(self) -> dict[int, int]:
        """Operand to result, for each parameter that is updated in place."""
        operands, outputs = self.operands(), self.outputs()
        return {i: outputs.index(p) for i, p in enumerate(operands) if p.role == "inout"}


def _shown(p: CallParameter) -> str:
    if p.role == "null":
        return f"{p.name}=None"
    if p.role != "value":
        return p.name
    known = p.dtype is not None and p.dtype.names is None
    return f"{p.name}={np.frombuffer(p.value, p.dtype)[0]!s}" if known else f"{p.name}=..."


def _dims(dims: Dim3) -> str:
    """A ``dim3`` as it is mostly written: ``4``, ``(4, 2)``."""
    least = max((i for i, n in enumerate(dims) if n != 1), default=0)
    return str(dims[: least + 1]) if least else str(dims[0])


def _describe(arrays: tuple[Array, ...]) -> str:
    return ", ".join(f"{dtype}[{','.join(map(str, shape))}]" for shape, dtype in arrays)

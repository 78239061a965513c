"""From operations on values to a program: where every value lives, and which nodes move it there.

Values are in single-assignment form: each is written by one operation and never changes. Memory is
shared where no result depends on it: views, in-place kernels whose operand is not read again,
pieces of a concatenation that are written where they end up. Everything else that sharing would
destroy is copied, by a node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jax_graphenc.calls.call import SLOT_BYTES, KernelCall
from jax_graphenc.programs import program
from jax_graphenc.programs.memory_plan import Storage, ancestors, plan

_NEVER = 1 << 62

_Locate = Callable[["Value"], program.Buffer]


@dataclass(slots=True, eq=False)
class Value:
    """Bytes that one operation writes, or that are an argument; or a view of a part of such.

    Attributes:
        bytes: its size.
        base: what it is a view of; itself for a value that is none.
        offset: of a view, in its base.
    """

    bytes: int
    base: Value = None  # type: ignore[assignment]
    offset: int = 0
    # The rest is said of bases only.
    _argument: int | None = None
    _result: int | None = None
    _last_use: int = -1
    # Where its memory is: at an offset of another value's, or its own.
    _root: Value = None  # type: ignore[assignment]
    _root_offset: int = 0
    _overwritten: int = _NEVER  # the operation that takes the memory over
    _alignment: int = 1
    _storage: Storage = field(default_factory=lambda: Storage(0))

    def __post_init__(self) -> None:
        if self.base is None:
            self.base = self
        self._root = self
        self._storage.bytes = self.bytes

    def _whole(self) -> Value | None:
        """The value that this is all of."""
        return self.base if self.bytes == self.base.bytes else None

    def _settle(self, at: Value, offset: int) -> None:
        self._root, self._root_offset = at._root, at._root_offset + offset

    def _fits(self, at: Value, offset: int) -> bool:
        return (at._root_offset + offset) % self._alignment == 0


@dataclass(slots=True, eq=False)
class _Launch:
    call: KernelCall
    kernel: program.Kernel
    operands: list[Value]
    outputs: list[Value]
    in_place: list[tuple[Value, Value]]  # operand, or what its output begins as; output
    scratch: list[Value]
    offsets: list[list[int]]  # of operands, outputs and scratch, for each element of the batch
    copied: list[tuple[Value, Value]] = field(default_factory=list)  # of these, what must be

    def reads(self) -> Sequence[Value]:
        return [*self.operands, *(value for value, _ in self.in_place)]

    def writes(self) -> Sequence[Value]:
        return [*self.outputs, *self.scratch]


@dataclass(slots=True, eq=False)
class _Fill:
    element: int
    pattern: int
    output: Value

    def reads(self) -> Sequence[Value]:
        return ()

    def writes(self) -> Sequence[Value]:
        return (self.output,)


@dataclass(slots=True, eq=False)
class _Concatenate:
    """Of one piece, a copy."""

    pieces: list[Value]
    output: Value
    copied: list[tuple[Value, int]] = field(default_factory=list)  # piece, offset

    def reads(self) -> Sequence[Value]:
        return self.pieces

    def writes(self) -> Sequence[Value]:
        return (self.output,)


class ProgramBuilder:
    """Records operations, in an order in which they may run, and makes a program of them.

    Args:
        name: of the program.
        reuse: when scratch memory may be used again, as ``memory_plan.plan`` takes it.
        gap: likewise, bytes behind each value in scratch memory.
    """

    def __init__(self, name: str, *, reuse: str = "path", gap: int = 0) -> None:
        self._name = name
        self._reuse = reuse
        self._gap = gap
        self._arguments: list[Value] = []
        self._copies: dict[tuple[int, int, int], Value] = {}  # of views, to be aligned
        self._operations: list[_Launch | _Fill | _Concatenate] = []

    def argument(self, bytes: int) -> Value:
        """The next argument of the program."""
        value = Value(bytes, _argument=len(self._arguments))
        self._arguments.append(value)
        return value

    def view(self, value: Value, offset: int, bytes: int) -> Value:
        """A part of a value; no copy."""
        if offset < 0 or offset + bytes > value.bytes:
            raise ValueError(f"a view of {bytes} bytes at {offset} of {value.bytes}")
        return Value(bytes, value.base, value.offset + offset)

    def fill(self, pattern: bytes, bytes: int) -> Value:
        """A value of one pattern of 1, 2 or 4 bytes, again and again."""
        if bytes % len(pattern):
            raise ValueError(f"{bytes} bytes are no multiple of the pattern's {len(pattern)}")
        output = Value(bytes)
        self._operations.append(_Fill(len(pattern), int.from_bytes(pattern, "little"), output))
        return output

    def concatenate(self, pieces: Sequence[Value]) -> Value:
        """Values one after the other, written in place where that is possible."""
        output = Value(sum(piece.bytes for piece in pieces))
        self._operations.append(_Concatenate(list(pieces), output))
        return output

    def copy(self, value: Value) -> Value:
        """A value of its own with the same contents."""
        return self.concatenate([value])

    def launch(
        self, call: KernelCall, kernel: program.Kernel, operands: Sequence[Value]
    ) -> list[Value]:
        """A kernel, once for each element of the call's batch; returns its outputs.

        Args:
            call: what to launch.
            kernel: the call's, compiled.
            operands: the call's inputs, with the dimensions of its batch in front.
        """
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in call.batched_results()]
        offsets = _batch_offsets(call, [value.bytes for value in operands], sizes)
        if not call.elements_are_aligned([value.bytes for value in operands]):
            return self._launch_apart(call, kernel, operands, offsets)
        operands = list(operands)
        for i, j in call.aliases().items():
            if operands[i].bytes != sizes[j]:
                # Each element updates a copy of its own.
                one = sizes[j] // len(offsets[i])
                pieces = [self.view(operands[i], at, one) for at in offsets[i]]
                operands[i], offsets[i] = self.concatenate(pieces), offsets[len(operands) + j]
        operands = [self._aligned(value, call.alignment) for value in operands]
        for value in operands:
            value.base._alignment = max(value.base._alignment, call.alignment)
        outputs = [Value(size, _alignment=call.alignment) for size in sizes]
        in_place = [(operands[i], outputs[j]) for i, j in call.aliases().items()]
        scratch = []
        for shape, dtype in call.scratch:
            # Each element's begins at a slot's alignment.
            stride = -(-math.prod(shape) * dtype.itemsize // SLOT_BYTES) * SLOT_BYTES
            scratch.append(Value(stride * len(offsets[0]), _alignment=call.alignment))
            offsets.append([stride * i for i in range(len(offsets[0]))])
        written = zip(
            (*call.outputs(), *call.scratch_parameters()), (*outputs, *scratch), strict=True
        )
        for p, value in written:
            if p.name in call.zero_init:
                in_place.append((self.fill(b"\0", value.bytes), value))
        launch = _Launch(call, kernel, operands, outputs, in_place, scratch, offsets)
        self._operations.append(launch)
        return outputs

    def _aligned(self, value: Value, alignment: int) -> Value:
        if value.offset % alignment == 0:
            return value
        place = (id(value.base), value.offset, value.bytes)
        if place not in self._copies:
            self._copies[place] = self.copy(value)
        return self._copies[place]

    def _launch_apart(
        self,
        call: KernelCall,
        kernel: program.Kernel,
        operands: Sequence[Value],
        offsets: list[list[int]],
    ) -> list[Value]:
        """A batch whose elements are not aligned where they are: each gets copies of its own."""
        one = replace(call, batch=())
        elements = call.batch_elements()
        pieces: list[list[Value]] = [[] for _ in call.results]
        for of_one in zip(*offsets, strict=True):
            parts = [
                self.view(value, at, value.bytes // n)
                for value, at, n in zip(operands, of_one, elements, strict=False)
            ]
            for made, of_output in zip(self.launch(one, kernel, parts), pieces, strict=True):
                of_output.append(made)
        return [self.concatenate(of_output) for of_output in pieces]

    # ------------------------------------------------------------------ placement

    def build(
        self, outputs: Sequence[Value], donated: Sequence[tuple[int, int]] = ()
    ) -> program.Program:
        """The program that gives back ``outputs``.

        Args:
            outputs: what the program's results are, in order.
            donated: pairs (argument, result) that may share their memory if that needs no copy.

        Returns:
            The program; if it needs scratch memory, that is one more result, the last.
        """
        results = self._results(outputs)
        for i, operation in enumerate(self._operations):
            for value in operation.reads():
                value.base._last_use = i
        for value in results:
            value._last_use = _NEVER
        aliases: dict[int, int] = {}
        for i in range(len(self._operations) - 1, -1, -1):
            operation = self._operations[i]
            if isinstance(operation, _Launch):
                self._settle_in_place(i, operation, aliases)
            elif isinstance(operation, _Concatenate):
                self._settle_pieces(operation)
        roots, dependencies = self._lifetimes()
        self._donate(results, donated, aliases)
        inner = [root._storage for root in roots if root._result is None]
        scratch = plan(inner, ancestors(dependencies), self._reuse, self._gap)
        return program.Program(
            self._name,
            tuple(value.bytes for value in self._arguments),
            (*(value.bytes for value in results), *([scratch] if inner else ())),
            tuple(sorted(aliases.items())),
            tuple(self._nodes(len(results))),
            len(results) if inner else None,  # also of no bytes: nodes may name it
        )

    def _results(self, outputs: Sequence[Value]) -> list[Value]:
        """Values that can live in the results: written here, whole, and each but once."""
        results: list[Value] = []
        for output in outputs:
            value = output._whole()
            if value is None or value._argument is not None or value._result is not None:
                value = self.copy(output)
            value._result = len(results)
            results.append(value)
        return results

    def _settle_in_place(self, i: int, launch: _Launch, aliases: dict[int, int]) -> None:
        """Gives an in-place kernel its operand's memory if the operand has no other reader."""
        bases = [value.base for value in launch.operands]
        for operand, output in launch.in_place:
            value = operand._whole()
            if (
                value is None
                or value._last_use != i
                or bases.count(value) > 1
                or not value._fits(output, 0)
            ):
                launch.copied.append((operand, output))
                continue
            if value._argument is not None:
                # The memory is the caller's: only a result may have it.
                root = output._root
                taken = value._argument in aliases or root._result in aliases.values()
                if root._result is None or root.bytes != value.bytes or taken:
                    launch.copied.append((operand, output))
                    continue
                aliases[value._argument] = root._result
            value._settle(output, 0)
            value._overwritten = i

    def _settle_pieces(self, concatenate: _Concatenate) -> None:
        """Lets pieces be written where they end up."""
        output, offset = concatenate.output, 0
        for piece in concatenate.pieces:
            value = piece._whole()
            if (
                value is None
                or value._argument is not None
                or value._root is not value
                or value._last_use >= output._overwritten
                or not value._fits(output, offset)
            ):
                concatenate.copied.append((piece, offset))
            else:
                value._settle(output, offset)
                value._overwritten = output._overwritten
            offset += piece.bytes

    def _lifetimes(self) -> tuple[list[Value], list[list[int]]]:
        """Owners of memory, in the order of their first use; and what each operation waits for."""
        roots: list[Value] = []
        writer: dict[int, int] = {}
        dependencies: list[list[int]] = []
        for i, operation in enumerate(self._operations):
            needs: list[int] = []
            bases = [value.base for value in operation.reads()]
            for value in bases:
                if id(value) in writer:
                    needs.append(writer[id(value)])
            dependencies.append(needs)
            for value in operation.writes():
                writer[id(value)] = i
                bases.append(value)
            for value in bases:
                root = value._root
                if root._argument is not None:
                    continue
                if not root._storage.operations:
                    roots.append(root)
                if root._storage.operations[-1:] != [i]:
                    root._storage.operations.append(i)
        return roots, dependencies

    def _donate(
        self, results: Sequence[Value], donated: Sequence[tuple[int, int]], aliases: dict[int, int]
    ) -> None:
        for argument, result in donated:
            old, new = self._arguments[argument], results[result]
            written = new._storage.operations
            if (
                argument not in aliases
                and result not in aliases.values()
                and old.bytes == new.bytes
                and written
                and old._last_use < written[0]
            ):
                aliases[argument] = result

    # ------------------------------------------------------------------ nodes

    def _nodes(self, scratch: int) -> Iterator[program.Node | program.Memset | program.Memcpy]:
        def buffer(value: Value, offset: int = 0, bytes: int | None = None) -> program.Buffer:
            base = value.base
            size = value.bytes if bytes is None else bytes
            offset += value.offset
            if base._argument is not None:
                return program.Buffer("argument", base._argument, offset, size)
            root = base._root
            offset += base._root_offset
            if root._result is not None:
                return program.Buffer("result", root._result, offset, size)
            return program.Buffer("result", scratch, root._storage.offset + offset, size)

        for operation in self._operations:
            if isinstance(operation, _Fill):
                if operation.output.bytes:
                    yield program.Memset(
                        operation.element, operation.pattern, buffer(operation.output)
                    )
            elif isinstance(operation, _Concatenate):
                for piece, offset in operation.copied:
                    if piece.bytes:
                        to = buffer(operation.output, offset, piece.bytes)
                        yield program.Memcpy(buffer(piece), to)
            else:
                for operand, output in operation.copied:
                    if operand.bytes:
                        yield program.Memcpy(buffer(operand), buffer(output))
                if 0 not in operation.call.grid:
                    yield from _launches(operation, buffer)


def _launches(launch: _Launch, buffer: _Locate) -> Iterator[program.Node]:
    """A node for each element of the batch."""
    call = launch.call
    # One per parameter that is no value: its memory, bytes of an element, and where each begins.
    places: list[tuple[program.Buffer, int, list[int]]] = []
    arrays = [*launch.operands, *launch.outputs, *launch.scratch]
    sizes = [x.bytes // n for x, n in zip(arrays, call.batch_elements(), strict=False)]
    sizes += [math.prod(shape) * dtype.itemsize for shape, dtype in call.scratch]
    operand = 0
    output = len(launch.operands)
    scratch = output + len(launch.outputs)
    for p in call.parameters:
        if not p.has_array:
            continue
        which = operand if p.role == "in" else scratch if p.role == "scratch" else output
        places.append((buffer(arrays[which]), sizes[which], launch.offsets[which]))
        operand += p.role in ("in", "inout")
        output += p.role in ("out", "inout")
        scratch += p.role == "scratch"
    for element in range(len(launch.offsets[0])):
        pointers = iter(places)
        bindings: list[program.Buffer | bytes] = []
        members: list[program.Buffer | bytes] = []
        for p in call.parameters:
            if p.has_array:
                whole, size, offsets = next(pointers)
                at = whole.offset + offsets[element]
                bound = program.Buffer(whole.side, whole.index, at, size)
                (members if p.member else bindings).append(bound)
            elif p.member is None:
                bindings.append(p.value)
        yield program.Node(
            launch.kernel,
            call.grid,
            call.block,
            call.cluster,
            call.shared_bytes,
            call.cooperative,
            (*bindings, *members),
        )


def _batch_offsets(
    call: KernelCall, operands: Sequence[int], outputs: Sequence[int]
) -> list[list[int]]:
    """Where each element of a batch begins in each operand and output, from their sizes."""
    offsets = []
    for i, size in enumerate((*operands, *outputs)):
        at: np.ndarray[Any, Any] = np.zeros((), np.int64)
        stride = size
        for level, (count, mask) in enumerate(call.batch):
            steps = np.zeros(count, np.int64)
            if i >= len(operands) or mask[i]:
                stride //= count
                steps = np.arange(count) * stride
            at = at[..., None] + steps if level else steps
        offsets.append(at.ravel().tolist())
    return offsets

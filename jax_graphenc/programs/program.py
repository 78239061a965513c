"""Programs as bytes: what a custom call carries. plugin/core/program/program.h has the format."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Literal

from jax_graphenc.base.shapes import Dim3


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        name: as the user's source calls it.
        pointer: whether it is an address; otherwise it is passed by value.
        reads, writes: what the kernel does with the memory (pointers only).
        size: bytes in the kernel's parameter block.
    """

    name: str
    pointer: bool
    reads: bool
    writes: bool
    size: int


@dataclass(frozen=True, slots=True)
class Member:
    """A pointer in a parameter that is passed by value: a member of a struct.

    Attributes:
        parameter: the place of the struct among the kernel's parameters.
        offset: in the struct, in bytes.
        name: as the user's source calls it: ``p.x``.
        reads, writes: what the kernel does with the memory.
    """

    parameter: int
    offset: int
    name: str
    reads: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of an image.

    Attributes:
        image: the image.
        symbol: the function's name there.
        label: the name that the user knows it by.
        parameters: in the kernel's order.
        members: pointers in by-value parameters, in the order of these and of their offsets.
    """

    image: bytes = field(repr=False)
    symbol: str
    label: str
    parameters: tuple[Parameter, ...]
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """``bytes`` bytes from ``offset`` of an argument or a result of the custom call."""

    side: Literal["argument", "result"]
    index: int
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Node:
    """One launch of a kernel.

    ``bindings`` has a buffer or the value's bytes per parameter, then a buffer per member.
    """

    kernel: Kernel
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    cooperative: bool
    bindings: tuple[Buffer | bytes, ...]


@dataclass(frozen=True, slots=True)
class Memset:
    """Fills ``to`` with elements of ``element`` bytes (1, 2 or 4) that are ``value`` each."""

    element: int
    value: int
    to: Buffer


@dataclass(frozen=True, slots=True)
class Memcpy:
    """Copies ``source`` to ``to``, which has as many bytes and shares none of them."""

    source: Buffer
    to: Buffer


@dataclass(frozen=True, slots=True, repr=False)
class Program:
    """An immutable node list.

    Attributes:
        name: shown in errors and profiles.
        arguments: bytes of each operand of the custom call.
        results: bytes of each result.
        aliases: (operand, result) pairs that share their memory.
        nodes: in an order that gives the right results; they run in any that gives the same.
        scratch: the result, if any, that only the nodes use; not aliased.
    """

    name: str
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    aliases: tuple[tuple[int, int], ...]
    nodes: tuple[Node | Memset | Memcpy, ...]
    scratch: int | None = None

    def __repr__(self) -> str:
        """One short line, as jaxprs show it."""
        return f"<program {self.name}, nodes: {len(self.nodes)}>"

    @property
    def version(self) -> int:
        """The oldest version of the format that can hold it."""
        members = (node.kernel.members for node in self.nodes if isinstance(node, Node))
        return 2 if any(members) else 1

    def encode(self) -> bytes:
        """The program as bytes, the same for equal programs in every process."""
        kernels = _Kernels(self.version)
        nodes = _encode_nodes(self.nodes, kernels)
        argument_of = {result: argument for argument, result in self.aliases}
        out = [b"JGEP", _U32.pack(self.version), _string(self.name)]
        out.append(struct.pack(f"<I{len(self.arguments)}Q", len(self.arguments), *self.arguments))
        out.append(_U32.pack(len(self.results)))
        for i, size in enumerate(self.results):
            alias = argument_of[i] + 1 if i in argument_of else 0
            out.append(struct.pack("<QIB", size, alias, i == self.scratch))
        out += kernels.encode()
        out.append(_U32.pack(len(self.nodes)))
        return b"".join(out + nodes)


_U32 = struct.Struct("<I")
_KERNEL_NODE = struct.Struct("<BI9IIB")
_MEMSET_NODE = struct.Struct("<BBI")
_MEMCPY_NODE = struct.Struct("<B")
_POINTER = struct.Struct("<BIQQ")


class _Kernels:
    """Numbers kernels as they are met, equal ones alike, and their images."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._numbers: dict[Kernel, int] = {}
        self._images: dict[bytes, int] = {}
        # A kernel is hashed whole, and mostly the same object is met again.
        self._numbers_by_id: dict[int, int] = {}

    def number(self, kernel: Kernel) -> int:
        number = self._numbers_by_id.get(id(kernel))
        if number is None:
            number = self._numbers.setdefault(kernel, len(self._numbers))
            self._numbers_by_id[id(kernel)] = number
            self._images.setdefault(kernel.image, len(self._images))
        return number

    def encode(self) -> list[bytes]:
        out = [_U32.pack(len(self._images))]
        for image in self._images:
            out += [struct.pack("<Q", len(image)), image]
        out.append(_U32.pack(len(self._numbers)))
        for kernel in self._numbers:
            out.append(_U32.pack(self._images[kernel.image]))
            out += [_string(kernel.symbol), _string(kernel.label)]
            out.append(_U32.pack(len(kernel.parameters)))
            for p in kernel.parameters:
                out.append(_string(p.name))
                out.append(struct.pack("<BBI", p.pointer, p.reads | p.writes << 1, p.size))
            if self._version > 1:
                out.append(_U32.pack(len(kernel.members)))
                for m in kernel.members:
                    out += [struct.pack("<II", m.parameter, m.offset), _string(m.name)]
                    out.append(struct.pack("<B", m.reads | m.writes << 1))
        return out


def _encode_nodes(nodes: tuple[Node | Memset | Memcpy, ...], kernels: _Kernels) -> list[bytes]:
    out: list[bytes] = []
    for node in nodes:
        if isinstance(node, Node):
            out.append(
                _KERNEL_NODE.pack(
                    1,
                    kernels.number(node.kernel),
                    *node.grid,
                    *node.block,
                    *node.cluster,
                    node.shared_bytes,
                    node.cooperative,
                )
            )
            for binding in node.bindings:
                out.append(binding if isinstance(binding, bytes) else _pointer(binding))
        elif isinstance(node, Memset):
            out += [_MEMSET_NODE.pack(2, node.element, node.value), _pointer(node.to)]
        else:
            out += [_MEMCPY_NODE.pack(3), _pointer(node.source), _pointer(node.to)]
    return out


def _pointer(buffer: Buffer) -> bytes:
    return _POINTER.pack(buffer.side == "result", buffer.index, buffer.offset, buffer.bytes)


def _string(text: str) -> bytes:
    data = text.encode()
    return _U32.pack(len(data)) + data

"""Programs as bytes: what a custom call carries. plugin/core/program.h describes the format."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from jax_graphenc import _core

Dim3 = tuple[int, int, int]


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
class Kernel:
    """A function of an image. ``label`` is the name that the user knows it by."""

    image: bytes
    symbol: str
    label: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class Buffer:
    """``bytes`` bytes from ``offset`` of an argument or a result of the custom call."""

    side: Literal["argument", "result"]
    index: int
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Node:
    """One launch of a kernel; ``bindings`` has a buffer or the value's bytes per parameter."""

    kernel: Kernel
    grid: Dim3
    block: Dim3
    cluster: Dim3
    shared_bytes: int
    cooperative: bool
    bindings: tuple[Buffer | bytes, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """An immutable node list.

    Attributes:
        name: shown in errors and profiles.
        arguments: bytes of each operand of the custom call.
        results: bytes of each result.
        aliases: (operand, result) pairs that share their memory.
    """

    name: str
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    aliases: tuple[tuple[int, int], ...]
    nodes: tuple[Node, ...]

    def encode(self) -> bytes:
        """The program as bytes, the same for equal programs in every process."""
        kernels = list(dict.fromkeys(node.kernel for node in self.nodes))
        images = list(dict.fromkeys(kernel.image for kernel in kernels))
        argument_of = {result: argument for argument, result in self.aliases}
        out = bytearray(b"JGEP" + struct.pack("<I", _core.PROGRAM_VERSION))
        out += _string(self.name)
        out += struct.pack("<I", len(self.arguments))
        out += struct.pack(f"<{len(self.arguments)}Q", *self.arguments)
        out += struct.pack("<I", len(self.results))
        for i, size in enumerate(self.results):
            out += struct.pack("<QI", size, argument_of[i] + 1 if i in argument_of else 0)
        out += struct.pack("<I", len(images))
        for image in images:
            out += struct.pack("<Q", len(image)) + image
        out += struct.pack("<I", len(kernels))
        for kernel in kernels:
            out += struct.pack("<I", images.index(kernel.image))
            out += _string(kernel.symbol) + _string(kernel.label)
            out += struct.pack("<I", len(kernel.parameters))
            for p in kernel.parameters:
                out += _string(p.name)
                out += struct.pack("<BBI", p.pointer, p.reads | p.writes << 1, p.size)
        out += struct.pack("<I", len(self.nodes))
        number = {kernel: i for i, kernel in enumerate(kernels)}
        for node in self.nodes:
            out += struct.pack("<BI", 1, number[node.kernel])
            out += struct.pack("<9I", *node.grid, *node.block, *node.cluster)
            out += struct.pack("<IB", node.shared_bytes, node.cooperative)
            for binding in node.bindings:
                if isinstance(binding, bytes):
                    out += binding
                else:
                    side = binding.side == "result"
                    out += struct.pack("<BIQQ", side, binding.index, binding.offset, binding.bytes)
        return bytes(out)


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data

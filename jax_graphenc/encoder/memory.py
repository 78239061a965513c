"""The memory of any library's array: an address with a shape and a dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jax_graphenc import _core

# The DLPack device types that a driver's kernels can access.
_REACHED = {"host": (1,), "cuda": (2, 3, 13)}  # CPU; CUDA, pinned, managed
_CUDA = 2
# DLPack's type codes, as numpy's names begin.
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


@dataclass(frozen=True, slots=True)
class Memory:
    """An array's memory, in C order without gaps.

    Attributes:
        address: of the first element.
        shape: of the array.
        dtype: of the elements.
        read_only: why it must not be written; empty if it may be written.
        holder: keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read_only: str
    holder: Any

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def range(self) -> tuple[int, int]:
        """Addresses of its first byte and of the one after its last."""
        return self.address, self.address + self.bytes


def memory_of(array: Any, where: str, device: jax.Device, native: _core.Encoder) -> Memory:
    """The memory of an array; makes the encoder's stream wait for the array's contents.

    Args:
        array: a numpy or JAX array, or an object with ``__dlpack__`` or
            ``__cuda_array_interface__``.
        where: the array's name in messages.
        device: the encoder's device.
        native: the native encoder.

    Raises:
        TypeError: if ``array`` is not an array, or on another device, with gaps or misaligned.
    """
    on_cuda = device.platform != "cpu"
    if isinstance(array, jax.core.Tracer):
        raise TypeError(
            f"{where} is traced; an encoder works outside of jax.jit, on arrays with contents"
        )
    if isinstance(array, jax.Array):
        return _of_jax(array, where, device, native)
    if isinstance(array, np.ndarray | np.generic) and on_cuda:
        raise TypeError(
            f"{where} is a numpy array, in the CPU's memory; the encoder is on {device}: pass "
            "jax.device_put(array, device), or an array of a library for CUDA"
        )
    if isinstance(array, np.ndarray):
        strides = tuple(n // (array.itemsize or 1) for n in array.strides)
        read_only = "" if array.flags.writeable else "a read-only numpy array"
        address = array.__array_interface__["data"][0]
        if not array.dtype.isnative:
            raise TypeError(f"{where} is in another byte order than the machine's: {array.dtype}")
        return _checked(address, array.shape, strides, array.dtype, read_only, array, where)
    if on_cuda and hasattr(array, "__cuda_array_interface__"):
        return _of_cuda_interface(array, where, native)
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(array, where, device, native)
    protocols = "__dlpack__" + (" or __cuda_array_interface__" if on_cuda else "")
    raise TypeError(
        f"{where}: an array is expected, of numpy, JAX or a library with {protocols}; got "
        f"{type(array).__name__}"
    )


def _of_jax(array: jax.Array, where: str, device: jax.Device, native: _core.Encoder) -> Memory:
    if array.devices() != {device}:
        found = ", ".join(map(str, sorted(array.devices(), key=lambda d: d.id)))
        raise TypeError(
            f"{where} is a JAX array on {found}; the encoder is on {device}: pass "
            "jax.device_put(array, device)"
        )
    # The capsule keeps the memory alive, even if the array is deleted or donated.
    if device.platform == "cpu":
        holder = array.block_until_ready().__dlpack__()
    else:
        holder = array.__dlpack__(stream=native.stream)  # type: ignore[call-arg]
    address = array.unsafe_buffer_pointer()
    return Memory(address, array.shape, array.dtype, "a JAX array, which is immutable", holder)


def _of_cuda_interface(array: Any, where: str, native: _core.Encoder) -> Memory:
    interface = array.__cuda_array_interface__
    address, read_only = interface["data"]
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is not None:
        strides = tuple(n // dtype.itemsize for n in strides)
    if (stream := interface.get("stream")) is not None:
        native.wait_for(stream)
    why = "a read-only array" if read_only else ""
    return _checked(address, shape, strides, dtype, why, array, where)


def _of_dlpack(array: Any, where: str, device: jax.Device, native: _core.Encoder) -> Memory:
    on_cuda = device.platform != "cpu"
    kind, number = (int(n) for n in array.__dlpack_device__())
    here = device.local_hardware_id or 0
    driver = "cuda" if on_cuda else "host"
    if kind not in _REACHED[driver] or (kind == _CUDA and number != here):
        raise TypeError(
            f"{where} is in the memory of DLPack device ({kind}, {number}); the encoder is on "
            f"{device}"
        )
    try:
        # The producer makes our stream wait for its pending work.
        capsule = array.__dlpack__(stream=native.stream) if kind == _CUDA else array.__dlpack__()
        _, _, address, shape, strides, code, bits, lanes = _core.dlpack_memory(capsule)
        name = _KINDS[code] + (str(bits) if code != 6 else "")
        dtype = jax.numpy.dtype(name)
    except Exception as error:
        raise TypeError(f"{where} cannot be taken by DLPack: {error!r}") from error
    if lanes != 1:
        raise TypeError(f"{where} has elements of {lanes} lanes; 1 is expected")
    return _checked(address, shape, strides, dtype, "", array, where)


def _checked(
    address: int,
    shape: tuple[int, ...],
    strides: Sequence[int] | None,
    dtype: np.dtype[Any],
    read_only: str,
    holder: Any,
    where: str,
) -> Memory:
    """Rejects gaps and misalignment, which a plain pointer cannot express; strides in elements."""
    expected = 1
    for n, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if n > 1 and 0 not in shape and stride != expected:
            raise TypeError(
                f"{where} has shape {shape} with strides {tuple(strides or ())} (in elements); an "
                "array in C order without gaps is expected: pass a contiguous copy"
            )
        expected *= n
    if address % max(dtype.alignment, 1):
        raise TypeError(f"{where} is not aligned to the {dtype.alignment} bytes of its {dtype}")
    return Memory(address, shape, dtype, read_only, holder)

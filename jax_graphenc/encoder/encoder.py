"""``Encoder``: runs kernels outside XLA, on arrays in place."""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import jax

from jax_graphenc import _core
from jax_graphenc.base.options import current as current_options
from jax_graphenc.base.shapes import Array
from jax_graphenc.base.tracebacks import ends_at_caller
from jax_graphenc.calls import arguments, launch
from jax_graphenc.calls.call import KernelCall, Observed
from jax_graphenc.calls.parameters import Parameter
from jax_graphenc.calls.values import Keywords
from jax_graphenc.devices.capturing import capturing
from jax_graphenc.devices.device_info import driver_of
from jax_graphenc.devices.target import Target, architecture
from jax_graphenc.encoder.memory import Memory, memory_of
from jax_graphenc.kernels.absent import absent_in
from jax_graphenc.kernels.kernel import CudaKernel
from jax_graphenc.kernels.prepare import prepare
from jax_graphenc.programs.compiled_call import compile_for
from jax_graphenc.programs.custom_call import program_of

_ROLE = {"in": "input", "out": "output", "inout": "output", "scratch": "scratch memory"}


class Encoder:
    """Collects kernels and launches them in batches on a stream of its own.

    Kernels run as if in the order they are appended; those that touch different bytes may run at
    the same time. Repeated batches are replayed as executable graphs. Kernels read and write arrays
    in place; read their results after ``synchronize``.

    As a context manager it synchronizes at the end, or drops the uncommitted work after an
    exception; then it closes. Several threads may call its methods; a concurrent region or a
    capture belongs to one thread. A child of ``os.fork()`` makes encoders of its own.

    Example::

        with jge.Encoder() as enc:
            enc.append(saxpy, x, y, out, a=2.0, n=x.size)

    Args:
        device: a JAX device; ``None`` is ``jax.devices()[0]``.

    Raises:
        TypeError: if ``device`` is not a JAX device.
        ValueError: for a device that is neither CUDA nor CPU.
    """

    def __init__(self, device: jax.Device | None = None) -> None:
        device = device if device is not None else jax.devices()[0]
        if not isinstance(device, jax.Device):
            raise TypeError(f"Encoder: one of jax.devices() is expected; got {device!r}")
        self._device = device
        self._native = _core.Encoder(driver_of(device), _ordinal(device))

    @property
    def device(self) -> jax.Device:
        """The device that runs its kernels."""
        return self._device

    def __repr__(self) -> str:
        return f"<Encoder on {self._device}>"

    @ends_at_caller
    def append(
        self,
        kernel: CudaKernel,
        /,
        *arrays: Any,
        grid: Any = None,
        block: Any = None,
        shared_mem: Any = None,
        cluster: Any = None,
        cooperative: bool | None = None,
        **values: Any,
    ) -> None:
        """Appends a kernel; compiles it at its first use, and commits when a batch is full.

        If the driver fails, the encoder drops the work appended since the last commit.

        Args:
            kernel: from ``cuda_kernel`` or ``kernel_call``.
            *arrays: an array per pointer of the kernel, in its order, including the outputs, which
                are written in place: numpy arrays on the CPU, and objects with ``__dlpack__`` or
                ``__cuda_array_interface__``; JAX arrays are immutable, so inputs only. In C order
                without gaps. The encoder keeps them until the work is done. ``None`` for an input
                is a null pointer, and for scratch memory it is memory of the encoder's own, kept
                likewise.
            grid: blocks in the grid: an int or up to three; ``None``, here and for the next four,
                takes the kernel's definition.
            block: threads in a block.
            shared_mem: dynamic shared memory per block, in bytes.
            cluster: blocks in a thread block cluster.
            cooperative: whether all blocks must be on the device at the same time.
            **values: a value for each by-value parameter.

        Raises:
            TypeError: for a wrong number or kind of arrays, a wrong dtype, or a wrong keyword.
            ValueError: for a launch that the device cannot make.
            KernelCompileError: if the source does not compile.
        """
        if not isinstance(kernel, CudaKernel):
            raise TypeError(
                f"Encoder.append: a kernel made by cuda_kernel is expected; got "
                f"{reprlib.repr(kernel)}"
            )
        kernel = kernel.current()
        name = kernel.__name__
        launches = _launches(name, grid, block, cluster, shared_mem, cooperative)
        if any(x is None for x in arrays):
            kernel, arrays = _without_absent(kernel, arrays)
        pointers = kernel.definition.pointers
        memories = self._memories(name, pointers, arrays)
        keywords = Keywords(kernel.definition.scalars(values))
        program, shapes = _program(
            kernel,
            tuple(memory and (memory.shape, memory.dtype) for memory in memories),
            keywords,
            tuple(launches.items()),
            self._device,
            current_options().debug,
        )
        scratch = iter(shapes)
        whole = [memory or self._allocate(next(scratch)) for memory in memories]
        addresses = [
            memory.address
            for roles in (("in", "inout"), ("out", "inout", "scratch"))  # arguments, then results
            for p, memory in zip(pointers, whole, strict=True)
            if p.role in roles
        ]
        self._native.append(program, addresses, [memory.holder for memory in whole])

    @contextlib.contextmanager
    def concurrent(self) -> Iterator[None]:
        """Kernels appended inside wait for earlier work, but not for each other.

        They may run in any order and at the same time, even if they touch the same bytes; later
        work waits for all of them. Nothing is committed inside.

        Raises:
            ValueError: inside another such region.
        """
        self._native.begin_concurrent()
        try:
            yield
        except BaseException:
            # A failed append dropped the region with the batch.
            with contextlib.suppress(ValueError):
                self._native.end_concurrent()
            raise
        self._native.end_concurrent()

    @contextlib.contextmanager
    def capture(self, *, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> Iterator[int]:
        """Captures the work that library code enqueues on a stream, as one node.

        An exception inside discards the captured work.

        Args:
            reads: the arrays that the work reads.
            writes: the arrays that it writes, or reads and writes. The encoder keeps both until the
                work is done.

        Yields:
            The stream to pass to the library, as an int: a ``CUstream``. A call that cannot be
            captured, such as synchronizing the stream, makes the capture fail.

        Raises:
            TypeError: if one of them is not an array on the device.
            ValueError: inside another capture.
            RuntimeError: if the capture fails.
        """
        to_read = [self._memory(x, f"reads[{i}]") for i, x in enumerate(reads)]
        to_write = [self._memory(x, f"writes[{i}]") for i, x in enumerate(writes)]
        for i, memory in enumerate(to_write):
            if memory.read_only:
                raise TypeError(f"writes[{i}] is {memory.read_only}")
        stream = self._native.begin_capture()
        try:
            with capturing():
                yield stream
        except BaseException:
            # An encoder that is closed has discarded it.
            with contextlib.suppress(ValueError):
                self._native.discard_capture()
            raise
        self._native.end_capture(
            [memory.range for memory in to_read if memory.bytes],
            [memory.range for memory in to_write if memory.bytes],
            [memory.holder for memory in (*to_read, *to_write)],
        )

    @ends_at_caller
    def add_completed_handler(self, handler: Callable[[str | None], object]) -> None:
        """Calls a function on another thread once the work appended so far is done.

        The call comes after the next commit, with ``None`` or a failure's message. An encoder's
        handlers run one after another, beside those of other encoders. An exception in one goes to
        ``sys.unraisablehook``. A handler must not synchronize an encoder.

        Raises:
            TypeError: if ``handler`` is not callable.
        """
        if not callable(handler):
            raise TypeError(
                "Encoder.add_completed_handler: a function of one argument is expected; got "
                f"{handler!r}"
            )
        self._native.add_completed_handler(handler)

    def keep(self, obj: object) -> None:
        """Keeps an object alive until the work appended so far is done."""
        self._native.keep(obj)

    @ends_at_caller
    def commit(self) -> None:
        """Launches the appended work, without waiting for it.

        Raises:
            RuntimeError: if that fails; the appended work is then dropped.
            ValueError: inside a concurrent region.
        """
        self._native.commit()

    @ends_at_caller
    def synchronize(self) -> None:
        """Commits, and waits until the work is done and its handlers have returned.

        Raises:
            RuntimeError: if the work failed.
            ValueError: inside a concurrent region, or in a completion handler.
        """
        self._native.synchronize()

    def close(self) -> None:
        """Drops uncommitted work, waits for the rest, and releases the stream.

        A closed encoder accepts no more work. Closing it again does nothing.
        """
        self._native.close()

    def __enter__(self) -> Encoder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.synchronize()
        finally:
            self.close()

    def _memories(
        self, name: str, pointers: Sequence[Parameter], arrays: Sequence[Any]
    ) -> list[Memory | None]:
        """The memory of a kernel's arrays, in the order of its pointers; ``None``: to allocate."""
        if len(arrays) != len(pointers):
            names = ", ".join(p.name for p in pointers)
            raise TypeError(
                f"kernel '{name}' takes {len(pointers)} arrays ({names}), outputs as well; got "
                f"{len(arrays)}"
            )
        memories = [
            None
            if array is None and p.role == "scratch"
            else self._memory(array, f"kernel '{name}': {_ROLE[p.role]} '{p.name}'")
            for p, array in zip(pointers, arrays, strict=True)
        ]
        for p, memory in zip(pointers, memories, strict=True):
            if p.role != "in" and memory is not None and memory.read_only:
                raise TypeError(
                    f"kernel '{name}': {_ROLE[p.role]} '{p.name}' is {memory.read_only}; an array "
                    "that may be written in place is expected, of numpy on the CPU, or of a "
                    "library such as CuPy on CUDA"
                )
        return memories

    def _allocate(self, array: Array) -> Memory:
        """Scratch memory of the encoder's own, which it keeps until the work is done."""
        # Of zeros, which those ask for that name it in zero_init.
        memory = jax.numpy.zeros(*array, device=self._device)
        return self._memory(memory, "scratch memory")

    def _memory(self, array: Any, where: str) -> Memory:
        return memory_of(array, where, self._device, self._native)


def _without_absent(
    kernel: CudaKernel, arrays: Sequence[Any]
) -> tuple[CudaKernel, tuple[Any, ...]]:
    """The kernel with null pointers for inputs that are ``None``, and the other arrays.

    Raises:
        TypeError: for a parameter that cannot be absent.
    """
    definition = kernel.definition
    pairs = list(zip(definition.pointers, arrays, strict=False))
    absent = absent_in(definition, [x for p, x in pairs if p.is_input])
    if not absent:
        return kernel, tuple(arrays)
    return kernel.without(absent), tuple(
        x
        for i, x in enumerate(arrays)
        if x is not None or i >= len(pairs) or not pairs[i][0].is_input
    )


def _launches(
    name: str, grid: Any, block: Any, cluster: Any, shared_mem: Any, cooperative: bool | None
) -> dict[str, Any]:
    """The parts of a launch that an append gives instead of the kernel's definition."""
    given = {"grid": grid, "block": block, "cluster": cluster}
    launches: dict[str, Any] = {
        what: launch.dim3(value, what, name) for what, value in given.items() if value is not None
    }
    if shared_mem is not None:
        launches["shared_mem"] = launch.integer(shared_mem, "shared_mem", name)
    if cooperative is not None:
        launches["cooperative"] = bool(cooperative)
    return launches


@functools.lru_cache(maxsize=1024)
def _program(
    kernel: CudaKernel,
    arrays: tuple[Array | None, ...],
    keywords: Keywords,
    launches: tuple[tuple[str, Any], ...],
    device: jax.Device,
    debug: bool = False,
) -> tuple[_core.Program, tuple[Array, ...]]:
    """The program of one launch, and the scratch memory that it needs beside ``arrays``.

    ``arrays`` has an entry per pointer, which is ``None`` for this memory.
    """
    pointers = kernel.definition.pointers
    inputs = [a for p, a in zip(pointers, arrays, strict=True) if p.is_input and a]
    outputs = [a for p, a in zip(pointers, arrays, strict=True) if p.role == "out" and a]
    dtypes = [dtype for _, dtype in inputs]
    definition = kernel.definition
    arguments.check_outputs(
        definition.spelled(dtypes),
        definition.parameters(dtypes),
        [dtype for _, dtype in outputs],
    )
    call = prepare(
        definition,
        inputs,
        keywords,
        Observed(checked=debug),
        out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in outputs],
        launch=replace(definition.launch, **dict(launches)),
    )
    given = [a for p, a in zip(pointers, arrays, strict=True) if p.role == "scratch"]
    _check_scratch(call, given)
    wanted = call.scratch
    # The caller has initialized and aligned the arrays. Scratch memory is one of them here.
    scratch, results = iter(call.scratch), iter(call.results)
    call = replace(
        call,
        zero_init=(),
        alignment=1,
        parameters=tuple(
            replace(p, role="out") if p.role == "scratch" else p for p in call.parameters
        ),
        results=tuple(
            next(scratch if p.role == "scratch" else results)
            for p in call.parameters
            if p.role in ("out", "inout", "scratch")
        ),
        scratch=(),
    )
    compiled = compile_for(replace(call, cpu="source"), _target(device))
    assert compiled is not None
    # The arrays may hold anything, so debug mode counts all parameters as read.
    compiled = replace(
        compiled,
        parameters=tuple(replace(p, reads=p.pointer) for p in compiled.parameters),
        members=tuple(replace(m, reads=True) for m in compiled.members),
    )
    sizes = list(map(_bytes, inputs))
    made, _ = program_of(call, compiled, sizes)
    needed = tuple(a for a, own in zip(wanted, given, strict=True) if own is None)
    return _core.Program(made.encode()), needed


def _check_scratch(call: KernelCall, given: Sequence[Array | None]) -> None:
    """Refuses an array that is smaller than the scratch memory it stands for.

    Raises:
        ValueError: naming it.
    """
    for p, wanted, array in zip(call.scratch_parameters(), call.scratch, given, strict=True):
        if array and _bytes(array) < _bytes(wanted):
            raise ValueError(
                f"kernel '{call.label}': scratch memory '{p.name}' has {_bytes(array)} bytes; "
                f"scratch= asks for {_bytes(wanted)}. Give a larger array, or None for memory of "
                "the encoder's own"
            )


def _bytes(array: Array) -> int:
    shape, dtype = array
    return math.prod(shape) * dtype.itemsize


def _target(device: jax.Device) -> Target:
    driver = driver_of(device)
    info = _core.device_info(driver, _ordinal(device))
    if driver == "host":
        return Target("cpu", ("cpu",), (info,))
    return Target("cuda", (architecture(info),), (info,))


def forget_programs() -> None:
    """Forgets the programs of appended kernels; see ``clear_caches``."""
    _program.cache_clear()


def _ordinal(device: jax.Device) -> int:
    return device.local_hardware_id or 0


# Ends the threads of completion handlers and closes open encoders while Python lives.
atexit.register(_core.shutdown)

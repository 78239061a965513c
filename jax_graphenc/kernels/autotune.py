"""``autotune``: the fastest of several launches and macros, found by timing, remembered on disk."""

from __future__ import annotations

import functools
import hashlib
import json
import reprlib
import statistics
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any

import jax

from jax_graphenc import _core
from jax_graphenc.base.errors import CompilerNotFoundError, KernelCompileError, NotTunedWarning
from jax_graphenc.base.options import current as current_options
from jax_graphenc.base.timing import alternate
from jax_graphenc.base.tracebacks import ends_at_caller, warn
from jax_graphenc.calls.arguments import as_array
from jax_graphenc.calls.code import Prebuilt
from jax_graphenc.compiler import cache
from jax_graphenc.compiler.compile import source_digest
from jax_graphenc.devices import target
from jax_graphenc.devices.capturing import is_capturing
from jax_graphenc.devices.device_info import driver_of
from jax_graphenc.kernels.define import variant
from jax_graphenc.kernels.kernel import CudaKernel

_KEY_VERSION = 1
_CALLS = {"host": 1, "cuda": 20}  # in one timed run: a GPU's kernels are short beside a dispatch
_TIE = 1.01  # what is this close to the fastest is as fast
_alive: weakref.WeakSet[Autotuned] = weakref.WeakSet()


class Autotuned:
    """A kernel that is called in the fastest of its configurations; made by ``autotune``."""

    def __init__(
        self,
        kernel: CudaKernel,
        configs: Sequence[Mapping[str, Any]],
        key: Callable[..., Any] | None,
        repeats: int,
    ) -> None:
        self.__name__ = kernel.__name__
        self.__doc__ = kernel.__doc__
        self._kernel = kernel
        self._configs = tuple(dict(config) for config in configs)
        self._variants = tuple(variant(kernel, **config) for config in self._configs)
        self._key = key
        self._repeats = repeats
        self._timings: tuple[tuple[dict[str, Any], float | None], ...] = ()
        self._make_caches()

    def _make_caches(self) -> None:
        self._chosen: dict[Any, int] = {}
        self._warned: set[Any] = set()
        self._lock = threading.Lock()
        _alive.add(self)

    def __getstate__(self) -> dict[str, Any]:
        # A copy looks its choices up: they are known by devices and kernels of this process.
        caches = ("_chosen", "_warned", "_lock")
        return {name: value for name, value in self.__dict__.items() if name not in caches}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_caches()

    def __repr__(self) -> str:
        return f"<autotune of {self._kernel!r} over {len(self._configs)} configurations>"

    @ends_at_caller
    def __call__(self, /, *inputs: Any, **keywords: Any) -> Any:
        """Calls the kernel, in the configuration that ``choose`` picks."""
        return self.choose(*inputs, **keywords)(*inputs, **keywords)

    def __getitem__(self, launch: Any) -> Any:
        """Refuses a launch in brackets, as a kernel does."""
        return self._kernel[launch]

    @ends_at_caller
    def choose(self, /, *inputs: Any, **keywords: Any) -> CudaKernel:
        """The kernel in the fastest configuration for such inputs.

        It is measured when it is not known yet and can be: not while JAX traces, where the first
        configuration is taken with a ``NotTunedWarning``, nor inside of a capture.

        Raises:
            Exception: what the first configuration raises, if none can be launched.
        """
        return self._variants[self._index(inputs, keywords)]

    @ends_at_caller
    def config(self, /, *inputs: Any, **keywords: Any) -> dict[str, Any]:
        """The configuration that ``choose`` picks, as it was given."""
        return dict(self._configs[self._index(inputs, keywords)])

    @property
    def timings(self) -> tuple[tuple[dict[str, Any], float | None], ...]:
        """Configurations and seconds per call, as this process measured them last.

        ``None`` stands for one that cannot be launched; empty if nothing was measured.
        """
        return self._timings

    def forget(self) -> None:
        """Forgets what this process knows; what is on disk stays."""
        with self._lock:
            self._chosen.clear()

    def _index(self, inputs: Sequence[Any], keywords: Mapping[str, Any]) -> int:
        where = f"kernel '{self.__name__}': input"
        arrays = [
            x if x is None or isinstance(x, jax.Array) else as_array(x, f"{where} {i}")
            for i, x in enumerate(inputs)
        ]
        if len(self._configs) == 1:
            return 0
        structs = [x if x is None else jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
        dtypes = tuple(None if s is None else s.dtype for s in structs)
        device = _device_of(arrays)
        wanted = (
            repr([s if s is None else (s.shape, str(s.dtype)) for s in structs])
            if self._key is None
            else repr(self._key(*structs, **keywords))
        )
        # The kernel of the files as they are: what was fast before they changed may not be now.
        short = (device, dtypes, wanted, self._kernel.current())
        found = self._chosen.get(short)
        if found is not None:
            return found
        with self._lock:
            found = self._chosen.get(short)
            if found is not None:
                return found
            digest = self._digest(device, dtypes, wanted)
            found = self._load(digest)
            if found is None:
                if _must_not_run(arrays, keywords):
                    self._warn(short)
                    return 0
                found, seconds = self._measure(driver_of(device), arrays, keywords)
                self._store(digest, found, seconds)
            self._chosen[short] = found
            return found

    def _warn(self, short: Any) -> None:
        if short in self._warned:
            return
        self._warned.add(short)
        warn(
            f"kernel '{self.__name__}' is not tuned for such inputs and takes the first "
            "configuration: what is traced or captured cannot be timed. Call it once outside of "
            "jax.jit and of captures, with arrays like these",
            NotTunedWarning,
        )

    # ------------------------------------------------------------------ on disk

    def _digest(self, device: jax.Device, dtypes: Sequence[Any], wanted: str) -> str:
        """Names all that the choice depends on."""
        driver = driver_of(device)
        info = _core.device_info(driver, device.local_hardware_id or 0)
        architecture = "cpu" if driver == "host" else target.architecture(info)
        codes = []
        for definition in (kernel.current().definition for kernel in self._variants):
            code, expression = definition.code_for(dtypes), definition.expression(dtypes)
            if isinstance(code, Prebuilt):
                images = b"".join(data for _, data in code.images)
                codes.append(f"{expression} {hashlib.sha256(images).hexdigest()}")
                continue
            try:
                codes.append(source_digest(code.source, [expression], architecture))
            except CompilerNotFoundError:
                codes.append("no compiler")
        parts = [
            _KEY_VERSION,
            [info["name"], info["multiprocessors"], info["driver_version"], architecture],
            codes,
            [_described(config) for config in self._configs],
            wanted,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def _load(self, digest: str) -> int | None:
        folder = current_options().cache_dir
        entry = None if folder is None else cache.get(folder, digest)
        index = None if entry is None else entry[0].get("configuration")
        return index if isinstance(index, int) and 0 <= index < len(self._configs) else None

    def _store(self, digest: str, index: int, seconds: Sequence[float | None]) -> None:
        folder = current_options().cache_dir
        if folder is not None:
            header = {"kernel": self.__name__, "configuration": index, "seconds": list(seconds)}
            cache.put(folder, digest, header, b"")

    # ------------------------------------------------------------------ measuring

    def _measure(
        self, driver: str, arrays: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[int, list[float | None]]:
        """Times all configurations, taking turns, so that a slow moment meets all of them."""
        runs: dict[int, Callable[[], float]] = {}
        first: Exception | None = None
        for index, kernel in enumerate(self._variants):
            try:
                compiled = _compiled(kernel, arrays, keywords, _CALLS[driver])
                run = functools.partial(_seconds, *compiled, arrays)
                for _ in range(2):
                    run()
                runs[index] = run
            except (KernelCompileError, ValueError, jax.errors.JaxRuntimeError) as error:
                first = first or error
        if not runs:
            assert first is not None
            first.add_note(f"no configuration of kernel '{self.__name__}' can be launched")
            raise first
        times = alternate(runs, rounds=self._repeats, warmup=0)
        seconds = [
            statistics.median(times[index]) if index in times else None
            for index in range(len(self._configs))
        ]
        self._timings = tuple(zip(map(dict, self._configs), seconds, strict=True))
        return fastest(seconds), seconds


def fastest(seconds: Sequence[float | None]) -> int:
    """The first of those that are as fast as the fastest, as far as clocks can tell."""
    least = min(s for s in seconds if s is not None)
    return next(i for i, s in enumerate(seconds) if s is not None and s <= least * _TIE)


@ends_at_caller
def autotune(
    kernel: CudaKernel,
    configs: Sequence[Mapping[str, Any]],
    *,
    key: Callable[..., Any] | None = None,
    repeats: int = 7,
) -> Autotuned:
    """Makes a kernel that is called in the fastest of several configurations.

    The first call with arrays of a kind, outside of ``jax.jit`` and of captures, compiles the
    kernel in each configuration and times it on the device; the choice is remembered on disk, in
    the folder of compiled kernels, by device, compiler, source and ``key``. A call that is traced
    takes what is remembered, else the first configuration, with a ``NotTunedWarning``: so tune
    before, by a call or with ``choose``.

    Example::

        smooth = jge.autotune(
            jge.cuda_kernel(source, "smooth", out_shape=lambda x: x, block=256,
                            grid=lambda x, block: jge.cdiv(x.size, block[0])),
            [{"block": n, "defines": {"TILE": t}} for n in (128, 256) for t in (2, 4)],
        )

    Args:
        kernel: from ``cuda_kernel``; its rules for derivatives are set before.
        configs: mappings of ``block``, ``grid``, ``shared_mem``, ``cluster`` and ``defines``, which
            replace the kernel's; macros are added to its own. Those that the device cannot launch
            are left out. All must compute the same. Of equally fast ones the first is taken.
        key: what of the inputs a choice is remembered by: a function, called with a
            ``jax.ShapeDtypeStruct`` for each input and the keywords, of anything with a ``repr``
            that tells it apart. All shapes and dtypes by default.
        repeats: how often each configuration is timed; the median counts.

    Returns:
        A function as the kernel is; ``choose`` gives the kernel for ``jge.Encoder``, ``config``
        the configuration, ``timings`` what was measured.

    Raises:
        TypeError, ValueError: for what is no kernel or no configuration.
    """
    if not isinstance(kernel, CudaKernel):
        raise TypeError(
            f"autotune: a kernel made by cuda_kernel is expected; got {reprlib.repr(kernel)}"
        )
    found = list(configs) if isinstance(configs, Iterable) else []
    if not found or not all(isinstance(config, Mapping) for config in found):
        raise ValueError(
            f"kernel '{kernel.__name__}': configs={configs!r}: a sequence of mappings is expected, "
            "such as [{'block': 128}, {'block': 256, 'defines': {'TILE': 4}}]"
        )
    if not isinstance(repeats, int) or repeats < 1:
        raise ValueError(
            f"kernel '{kernel.__name__}': repeats={repeats!r}: an integer from 1 on is expected"
        )
    return Autotuned(kernel, found, key, repeats)


def forget_choices() -> None:
    """Forgets the choices of this process; see ``clear_caches``."""
    for tuned in list(_alive):
        tuned.forget()


def _compiled(
    kernel: CudaKernel, arrays: Sequence[Any], keywords: Mapping[str, Any], calls: int
) -> tuple[Callable[..., Any], int]:
    """A function that calls the kernel several times, and how many times after XLA's work.

    XLA leaves out a call that is like one before. So the first element of the first input is set
    anew for each, to what it was; that it is, and that it does not depend on the last output, XLA
    cannot know.
    """
    present = [i for i, x in enumerate(arrays) if x is not None]
    which = present[0] if present else None
    if which is None or not arrays[which].size:
        calls = 1

    def chain(same: Any, never: Any, *inputs: Any) -> Any:
        out = kernel(*inputs, **keywords)
        for _ in range(calls - 1):
            assert which is not None
            first = inputs[which]
            seen = jax.numpy.any(jax.numpy.ravel(jax.tree.leaves(out)[0])[:1])
            flat = jax.numpy.ravel(first)
            value = jax.numpy.where(seen == never, same, flat[:1])
            same_again = flat.at[:1].set(value).reshape(first.shape)
            inputs = (*inputs[:which], same_again, *inputs[which + 1 :])
            out = kernel(*inputs, **keywords)
        return out

    same = None if which is None else jax.numpy.ravel(arrays[which])[:1]
    compiled = jax.jit(chain).lower(same, True, *arrays).compile()
    there = (compiled.as_text() or "").count('custom_call_target="jax_graphenc.')
    return functools.partial(compiled, same, True), max(there, 1)


def _seconds(run: Callable[..., Any], calls: int, arrays: Sequence[Any]) -> float:
    """How long a call takes, of so many in a run."""
    begin = time.perf_counter()
    jax.block_until_ready(run(*arrays))
    return (time.perf_counter() - begin) / calls


def _device_of(arrays: Sequence[Any]) -> jax.Device:
    for array in arrays:
        if array is not None and not isinstance(array, jax.core.Tracer):
            device: jax.Device = min(array.devices(), key=lambda d: d.id)
            return device
    default = getattr(jax.config, "jax_default_device", None)
    return default if isinstance(default, jax.Device) else jax.devices(default)[0]


def _must_not_run(arrays: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Whether nothing can be timed here."""
    given = (*arrays, *keywords.values(), jax.numpy.zeros(()))  # which is traced under jax.jit
    if any(isinstance(x, jax.core.Tracer) for x in given):
        return True
    return is_capturing() or any(len(x.devices()) > 1 for x in arrays if x is not None)


def _described(value: Any) -> Any:
    """A text that tells configurations apart, the same in every process."""
    if isinstance(value, Mapping):
        return {str(name): _described(part) for name, part in sorted(value.items())}
    code = getattr(value, "__code__", None)
    if isinstance(code, CodeType):
        constants = [repr(c) for c in code.co_consts if not isinstance(c, CodeType)]
        return [value.__qualname__, code.co_code.hex(), constants]
    return value.__qualname__ if callable(value) and hasattr(value, "__qualname__") else repr(value)

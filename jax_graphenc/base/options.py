"""Options: an environment variable, a call or a scope sets each."""

from __future__ import annotations

import contextlib
import inspect
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import platformdirs

from jax_graphenc import _core
from jax_graphenc.base.option_kinds import KINDS
from jax_graphenc.base.tracebacks import ends_at_caller

ENVIRONMENT_PREFIX = "JAX_GRAPHENC_"


@dataclass(frozen=True, slots=True)
class Options:
    """The options in force.

    A change of an option that is read when a function is traced or lowered clears JAX's caches, so
    it takes effect at the next call. A trace that is running in another thread keeps the old value.

    Attributes:
        max_ops_per_graph: nodes per committed batch; ``None`` takes the device's value from the
            table. Read at each execution.
        max_mb_per_graph: megabytes (10^6 bytes) of distinct buffers per committed batch; ``None``
            takes the table's value. Read at each execution.
        use_graphs: replay several nodes as an executable graph instead of launching each. Read at
            each execution.
        use_command_buffers: let XLA gather lone kernels and small regions with its own operations
            into its graphs, which it captures. ``False`` where another thread's operations, such
            as allocations of another library, invalidate a capture. Read when a call is lowered.
        graph_cache_size: nodes of the executable graphs kept per device. What does not fit is
            launched node by node, until it is used more than what is kept. Read at each execution.
        graph_after: how often a graph is launched node by node before it is instantiated.
            Instantiating costs about twice a launch. Read at each execution.
        save_dot: folder for a drawing of every committed batch: numbered Graphviz files with the
            kernels, their arguments and the edges. Read at each execution.
        time_driver_calls: time every call of the CUDA driver, for ``driver_calls()``. Read when a
            driver is first used.
        cache_dir: folder of compiled kernels; ``None`` switches the disk cache off. Read when a
            kernel is compiled.
        max_batch_nodes: the most launches that ``jax.vmap`` makes of one call at once; a larger
            batch is a loop. Read when a call is traced.
        max_unrolled_nodes: the most nodes of a counted loop that a region unrolls whole; a longer
            loop is unrolled in part. Read when a region is lowered.
        scratch_reuse: when memory of a program's inner values is reused: ``"path"``, where reuse
            orders no nodes that could run at the same time; ``"order"``, as soon as the program's
            order allows, which takes the least memory; ``"never"``. Read when a region is lowered.
        cuda_targets: architectures to compile for when a call is lowered for CUDA, instead of
            this process's GPUs: ``("sm_80", "sm_90a")``, or a string with commas. ``"compute_80"``
            is PTX, for compute capability 8.0 and later and a driver as new as the compiler.
            ``()``, the default, takes this process's GPUs. Read when a call is lowered.
        debug: synchronize after every kernel and name a kernel that fails; on the CPU, find
            accesses out of bounds and barriers that some threads miss. Read when a call is traced
            (it keeps the call out of XLA's command buffers) and at each execution.
        time_kernels: run a program's nodes one after the other with events between them, wait for
            them, and add up their times for ``kernel_times()``. Read when a call is traced (it
            keeps the call out of XLA's command buffers) and at each execution.
    """

    max_ops_per_graph: int | None = None
    max_mb_per_graph: int | None = None
    use_graphs: bool = True
    use_command_buffers: bool = True
    graph_cache_size: int = 1 << 18
    graph_after: int = 1
    save_dot: Path | None = None
    time_driver_calls: bool = False
    cache_dir: Path | None = None
    max_batch_nodes: int = 256
    max_unrolled_nodes: int = 4096
    scratch_reuse: str = "path"
    cuda_targets: tuple[str, ...] = ()
    debug: bool = False
    time_kernels: bool = False


# Read when a function is traced or lowered.
_COMPILED_IN = (
    "max_batch_nodes",
    "max_unrolled_nodes",
    "scratch_reuse",
    "cuda_targets",
    "use_command_buffers",
    "debug",
    "time_kernels",
)


def _from_environment() -> Options:
    found: dict[str, Any] = {"cache_dir": platformdirs.user_cache_path("jax_graphenc")}
    for name, kind in KINDS.items():
        variable = ENVIRONMENT_PREFIX + name.upper()
        if (text := os.environ.get(variable)) is not None:
            found[name] = kind.read(variable, text)
    return Options(**found)


_lock = threading.RLock()  # collecting garbage inside may end a scope in this thread
_current = Options()


def current() -> Options:
    """The options in force."""
    return _current


def origin(name: str) -> str:
    """Where an option's value came from.

    Returns:
        ``"default"``, the name of the environment variable, or ``"jge.options(...)"``.
    """
    if getattr(_current, name) != getattr(_initial, name):
        return "jge.options(...)"
    variable = ENVIRONMENT_PREFIX + name.upper()
    return variable if variable in _variables else "default"


def _install(options: Options) -> None:
    global _current
    _current = options
    _core.set_options(
        max_ops_per_graph=options.max_ops_per_graph or 0,
        max_mb_per_graph=options.max_mb_per_graph or 0,
        use_graphs=options.use_graphs,
        graph_cache_size=options.graph_cache_size,
        graph_after=options.graph_after,
        save_dot=str(options.save_dot or ""),
        time_driver_calls=options.time_driver_calls,
        debug=options.debug,
        time_kernels=options.time_kernels,
    )


@contextlib.contextmanager
def _changing() -> Iterator[None]:
    """Serializes changes of the options, and clears JAX's caches where one needs it."""
    with _lock:
        before = _current
        yield
        changed = any(getattr(before, name) != getattr(_current, name) for name in _COMPILED_IN)
    if changed:
        # JAX's caches do not depend on our options. Outside the lock: clearing them may free an
        # object that ends a scope.
        jax.clear_caches()


class options:
    """Sets options at once, for the whole process; as a context manager, until the scope ends.

    ``jge.options(debug=True)`` stays in force; ``with jge.options(debug=True): ...`` restores the
    options that it names at its end. Threads see each other's options. ``jge.options()`` changes
    nothing and shows the options in force.

    Args:
        **changes: fields of ``Options``; ``cache_dir`` may be a string.

    Raises:
        TypeError: for an unknown option; the message lists the options.
        ValueError: for a value that the option cannot take.
    """

    @ends_at_caller
    def __init__(self, **changes: Any) -> None:
        names = [field.name for field in fields(Options)]
        for name, value in changes.items():
            if name not in names:
                raise TypeError(f"{name!r} is not an option; the options are {', '.join(names)}")
            changes[name] = KINDS[name].checked(name, value)
        self._changes = changes
        # What to restore; None once restored.
        self._before: dict[str, Any] | None = None
        with _changing():
            self._apply()

    def _apply(self) -> None:
        self._before = {name: getattr(_current, name) for name in self._changes}
        _install(replace(_current, **self._changes))

    def __enter__(self) -> options:
        with _changing():
            if self._before is None:
                self._apply()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _changing():
            _install(replace(_current, **(self._before or {})))
            self._before = None

    def __repr__(self) -> str:
        return repr(_current)


# Lets editors and notebooks complete the names; ``...`` leaves an option as it is.
options.__init__.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        *(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=field.type
            )
            for field in fields(Options)
        ),
    ]
)


_initial = _from_environment()
_variables = frozenset(os.environ)  # at the time they were read
_install(_initial)

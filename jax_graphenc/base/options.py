"""Options: each can be set by an environment variable, by a call, or for a scope."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import platformdirs

from jax_graphenc import _core
from jax_graphenc.base.tracebacks import ends_at_caller

ENVIRONMENT_PREFIX = "JAX_GRAPHENC_"

SCRATCH_REUSE = ("path", "order", "never")
"""What ``scratch_reuse`` can be; ``programs/memory_plan.py`` says what each means."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options in force.

    A change of one that is read when a function is traced or lowered makes JAX forget all that it
    has compiled, so that it takes effect at the next call. What another thread is tracing at that
    moment keeps what it has read.

    Attributes:
        max_ops_per_graph: nodes per committed batch; ``None`` takes the table's value for the
            device. Read at each execution.
        max_mb_per_graph: megabytes (10^6 bytes) of distinct buffers per committed batch; ``None``
            takes the table's value. Read at each execution.
        use_graphs: replay several nodes as an executable graph; otherwise launch each. Read at each
            execution.
        graph_cache_size: executable graphs kept per device. Read at each execution.
        graph_after: how often a graph is launched node by node before it is instantiated, which
            costs about twice as much as launching it once. Read at each execution.
        save_dot: folder that every committed batch of nodes is drawn into, as numbered Graphviz
            files with the kernels, their arguments and the edges. Read at each execution.
        time_driver_calls: put a clock around every call of the CUDA driver, for
            ``driver_calls()``. Read when a driver is first used.
        cache_dir: folder of compiled kernels; ``None`` switches the disk cache off. Read when a
            kernel is compiled.
        max_batch_nodes: launches that ``jax.vmap`` may make of one call at once; a larger batch is
            a loop. Read when a call is traced.
        max_unrolled_nodes: nodes that a counted loop of a region may have to be unrolled whole into
            a program; a longer one is unrolled in part. Read when a region is lowered.
        scratch_reuse: when memory of a program's inner values is used again: ``"path"``, where that
            keeps nothing from running at the same time; ``"order"``, as soon as the program's
            order allows, which takes the least memory; ``"never"``. Read when a region is lowered.
        cuda_targets: architectures that kernels are compiled for when a call is lowered for CUDA,
            instead of the GPUs at hand: ``("sm_80", "sm_90a")``, or a text with commas.
            ``"compute_80"`` is PTX, for devices of compute capability 8.0 and later whose driver is
            as new as the compiler. ``()``, the default, takes the GPUs at hand. Read when a call is
            lowered.
        debug: synchronize after every kernel and name the one that failed; on the CPU, find
            accesses out of bounds and barriers that not all threads reach. Read when a call is
            traced (it keeps the call out of XLA's command buffers) and at each execution.
        time_kernels: run the nodes of a program one after the other with an event between them,
            wait for them, and add up their times for ``kernel_times()``. Read when a call is traced
            (it keeps the call out of XLA's command buffers) and at each execution.
    """

    max_ops_per_graph: int | None = None
    max_mb_per_graph: int | None = None
    use_graphs: bool = True
    graph_cache_size: int = 400
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


_MOST = 2**31 - 1  # an int of the native part


def _is_integer(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _boolean(text: str) -> bool:
    known = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    return known[text.lower() or "0"]


def _folder(value: str | os.PathLike[str] | None) -> Path | None:
    return Path(value).expanduser().absolute() if value else None


def _is_folder(value: Any) -> bool:
    if not isinstance(value, str | os.PathLike | None):
        return False
    try:
        _folder(value)
    except RuntimeError:  # of ~somebody who is not known
        return False
    return True


_ARCHITECTURE = re.compile(r"(?:sm|compute)_[1-9]\d+[af]?")


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    """The parts of a text with commas, or of a sequence; each once."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _are_targets(value: Any) -> bool:
    if not isinstance(value, str | tuple | list) or not all(isinstance(v, str) for v in value):
        return False
    return all(_ARCHITECTURE.fullmatch(name) for name in _names(value))


@dataclass(frozen=True, slots=True)
class _Kind:
    """What values an option takes, and how a text becomes one."""

    expected: str
    accepts: Callable[[Any], bool]
    parse: Callable[[str], Any]
    convert: Callable[[Any], Any] = lambda value: value


_POSITIVE = "a positive integer below 2**31"
_LIMIT = _Kind(_POSITIVE, lambda v: v is None or _is_integer(v, 1), int)
_SIZE = _Kind(_POSITIVE, lambda v: _is_integer(v, 1), int)
_COUNT = _Kind("an integer from 0 on, below 2**31", lambda v: _is_integer(v, 0), int)
_SWITCH = _Kind("True or False (1 or 0)", lambda v: isinstance(v, bool), _boolean)
_REUSE = _Kind(f"one of {', '.join(SCRATCH_REUSE)}", lambda v: v in SCRATCH_REUSE, str)
_TARGETS = _Kind("a list of architectures such as sm_90a or compute_80", _are_targets, str, _names)
_FOLDER = _Kind("a folder", _is_folder, str, _folder)

_KINDS = {
    "max_ops_per_graph": _LIMIT,
    "max_mb_per_graph": _LIMIT,
    "use_graphs": _SWITCH,
    "graph_cache_size": _SIZE,
    "graph_after": _COUNT,
    "save_dot": _FOLDER,
    "time_driver_calls": _SWITCH,
    "cache_dir": _FOLDER,
    "max_batch_nodes": _SIZE,
    "max_unrolled_nodes": _SIZE,
    "scratch_reuse": _REUSE,
    "cuda_targets": _TARGETS,
    "debug": _SWITCH,
    "time_kernels": _SWITCH,
}


# Those that are read when a function is traced or lowered.
_COMPILED_IN = (
    "max_batch_nodes",
    "max_unrolled_nodes",
    "scratch_reuse",
    "cuda_targets",
    "debug",
    "time_kernels",
)


def _from_environment() -> Options:
    found: dict[str, Any] = {"cache_dir": platformdirs.user_cache_path("jax_graphenc")}
    for name, kind in _KINDS.items():
        variable = ENVIRONMENT_PREFIX + name.upper()
        text = os.environ.get(variable)
        if text is None:
            continue
        try:
            value = kind.parse(text)
        except (ValueError, KeyError):
            value = None
        if value is None or not kind.accepts(value):
            raise ValueError(
                f"environment variable {variable}={text!r}: {kind.expected} is expected"
            )
        found[name] = kind.convert(value)
    return Options(**found)


_lock = threading.RLock()  # again, where garbage is collected that ends a scope
_current = Options()


def current() -> Options:
    """The options in force."""
    return _current


def origin(name: str) -> str:
    """Where the value of an option in force came from.

    Returns:
        ``"default"``, the environment variable that holds it, or ``"jge.options(...)"`` where that
        has set another one.
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
    """A change of the options, one at a time."""
    with _lock:
        before = _current
        yield
        changed = any(getattr(before, name) != getattr(_current, name) for name in _COMPILED_IN)
    if changed:
        # JAX would hand out what it has compiled with the others: it knows nothing of options.
        # Without the lock, since an object that goes with the caches may end a scope of its own.
        jax.clear_caches()


class options:
    """Sets options, process-wide, at once; as a context manager, until the scope ends.

    ``jge.options(debug=True)`` stays in force; ``with jge.options(debug=True): ...`` restores at
    its end the options that it names. Scopes of several threads see each other's options.
    ``jge.options()`` changes nothing and shows what is in force.

    Args:
        **changes: fields of ``Options``; ``cache_dir`` may be a string.

    Raises:
        TypeError: for a name that is no option, listing those that are.
        ValueError: for a value that the option cannot take.
    """

    @ends_at_caller
    def __init__(self, **changes: Any) -> None:
        names = [field.name for field in fields(Options)]
        for name, value in changes.items():
            if name not in names:
                raise TypeError(f"{name!r} is no option; the options are {', '.join(names)}")
            changes[name] = _checked(name, value)
        self._changes = changes
        # What to restore; None once that is done.
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


# So that editors and notebooks complete the names; ``...`` leaves an option as it is.
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


def _checked(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    if not kind.accepts(value):
        optional = " or None" if kind in (_LIMIT, _FOLDER) else ""
        raise ValueError(f"option {name}={value!r}: {kind.expected}{optional} is expected")
    return kind.convert(value)


_initial = _from_environment()
_variables = frozenset(os.environ)  # as they were when they were read
_install(_initial)

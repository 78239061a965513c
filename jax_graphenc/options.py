"""Options: each can be set by an environment variable, by a call, or for a scope."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import platformdirs

from jax_graphenc import _core

ENVIRONMENT_PREFIX = "JAX_GRAPHENC_"


@dataclass(frozen=True, slots=True)
class Options:
    """The options in force.

    Attributes:
        max_ops_per_graph: nodes per committed batch; ``None`` takes the table's value for the
            device. Read at each execution.
        max_mb_per_graph: megabytes (10^6 bytes) of distinct buffers per committed batch; ``None``
            takes the table's value. Read at each execution.
        cache_dir: folder of compiled kernels; ``None`` switches the disk cache off. Read when a
            kernel is compiled.
        debug: synchronize after every kernel and name the one that failed. Read when a call is
            traced (it keeps the call out of XLA's command buffers) and at each execution.
    """

    max_ops_per_graph: int | None = None
    max_mb_per_graph: int | None = None
    cache_dir: Path | None = None
    debug: bool = False


def _integer(text: str) -> int | None:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a positive integer is expected")
    return int(text)


def _boolean(text: str) -> bool:
    if text.lower() in ("1", "true", "on"):
        return True
    if text.lower() in ("0", "false", "off", ""):
        return False
    raise ValueError("1 or 0 is expected")


def _folder(text: str) -> Path | None:
    return Path(text).expanduser().absolute() if text else None


_PARSERS: dict[str, Callable[[str], Any]] = {
    "max_ops_per_graph": _integer,
    "max_mb_per_graph": _integer,
    "cache_dir": _folder,
    "debug": _boolean,
}


def _from_environment() -> Options:
    found: dict[str, Any] = {"cache_dir": platformdirs.user_cache_path("jax_graphenc")}
    for name, parse in _PARSERS.items():
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable not in os.environ:
            continue
        try:
            found[name] = parse(os.environ[variable])
        except ValueError as error:
            raise ValueError(
                f"environment variable {variable}={os.environ[variable]!r}: {error}"
            ) from None
    return Options(**found)


_lock = threading.Lock()
_current: Options


def current() -> Options:
    """The options in force."""
    return _current


def _install(options: Options) -> None:
    global _current
    _current = options
    _core.set_options(
        max_ops_per_graph=options.max_ops_per_graph or 0,
        max_mb_per_graph=options.max_mb_per_graph or 0,
        debug=options.debug,
    )


_scopes: list[options] = []  # that are entered
_order = itertools.count()


class options:
    """Sets options, process-wide, at once; as a context manager, until the scope ends.

    ``jge.options(debug=True)`` stays in force; ``with jge.options(debug=True): ...`` restores at
    its end the options that it names, in whatever order scopes of several threads end.
    ``jge.options()`` changes nothing and shows what is in force.

    Args:
        **changes: fields of ``Options``; ``cache_dir`` may be a string.

    Raises:
        TypeError: for a name that is no option, listing those that are.
        ValueError: for a value that the option cannot take.
    """

    def __init__(self, **changes: Any) -> None:
        names = [field.name for field in fields(Options)]
        for name, value in changes.items():
            if name not in names:
                raise TypeError(f"{name!r} is no option; the options are {', '.join(names)}")
            changes[name] = _checked(name, value)
        self._changes = changes
        # What to restore; None once that is done.
        self._before: dict[str, Any] | None = None
        with _lock:
            self._apply()

    def _apply(self) -> None:
        self._order = next(_order)
        self._before = {name: getattr(_current, name) for name in self._changes}
        _install(replace(_current, **self._changes))

    def __enter__(self) -> options:
        with _lock:
            if self._before is None:
                self._apply()
            _scopes.append(self)
            _scopes.sort(key=lambda scope: scope._order)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _lock:
            later = [scope for scope in _scopes if scope._order > self._order]
            restored: dict[str, Any] = {}
            for name, value in (self._before or {}).items():
                # A scope that began later and is still open restores it, in its turn.
                heir = next((s._before for s in later if s._before and name in s._before), restored)
                heir[name] = value
            _install(replace(_current, **restored))
            self._before = None
            if self in _scopes:
                _scopes.remove(self)

    def __repr__(self) -> str:
        return repr(_current)


def _checked(name: str, value: Any) -> Any:
    if name == "debug":
        if not isinstance(value, bool):
            raise ValueError(f"option debug={value!r}: True or False is expected")
    elif name == "cache_dir":
        if not isinstance(value, str | os.PathLike | None):
            raise ValueError(f"option cache_dir={value!r}: a folder or None is expected")
        return Path(value).expanduser().absolute() if value is not None else None
    elif value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(f"option {name}={value!r}: a positive integer or None is expected")
    return value


_install(_from_environment())

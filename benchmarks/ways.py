"""Ways to do a work, and the measures of a call."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import numpy as np

import jax_graphenc as jge

QUEUED = 10  # calls in a row, which hide the host time


class AbsentError(Exception):
    """A peer or a part cannot run here; the message says why."""


class Way:
    """One way to do a work: a call enqueues it once. Its methods measure a call.

    Attributes:
        kinds: the measures: names of the methods below.
        calls: how often it was called, which determines the right result.
    """

    kinds: tuple[str, ...] = ("host", "wall", "queued")
    calls: int = 0

    def call(self) -> None:
        """Enqueues the work."""
        raise NotImplementedError

    def wait(self) -> None:
        """Waits until all calls are done."""
        raise NotImplementedError

    def result(self) -> np.ndarray:
        """The result of the last call."""
        raise NotImplementedError

    def host(self) -> float:
        """Microseconds to dispatch a call right after another.

        The first call after a wait also wakes the processor and fills its caches, which takes
        several times as long.
        """
        self.call()
        start = time.perf_counter()
        self.call()
        elapsed = time.perf_counter() - start
        self.wait()
        return 1e6 * elapsed

    def wall(self) -> float:
        """Microseconds from a call to its result."""
        start = time.perf_counter()
        self.call()
        self.wait()
        return 1e6 * (time.perf_counter() - start)

    def queued(self) -> float:
        """Microseconds per call, of several in a row."""
        start = time.perf_counter()
        for _ in range(QUEUED):
            self.call()
        self.wait()
        return 1e6 * (time.perf_counter() - start) / QUEUED

    def patched(self) -> float:
        """Nodes of our executable graphs that one call patched."""
        before = jge.stats()["nodes_patched"]
        self.call()
        self.wait()
        return float(jge.stats()["nodes_patched"] - before)


@dataclass
class JaxWay(Way):
    """A jitted function of one array.

    Attributes:
        function: takes and returns an array.
        x: the argument of the first call.
        feed: whether a result is the next call's argument.
        keep: how many arguments stay alive after their call, which makes addresses move.
    """

    function: Callable[[jax.Array], jax.Array]
    x: jax.Array
    feed: bool = True
    keep: int = 0
    kinds: tuple[str, ...] = Way.kinds
    calls: int = 0
    _out: jax.Array | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._kept: collections.deque[jax.Array] = collections.deque(maxlen=self.keep)

    def call(self) -> None:
        self.calls += 1
        self._kept.append(self.x)
        self._out = self.function(self.x)
        if self.feed:
            self.x = self._out

    def wait(self) -> None:
        jax.block_until_ready(self._out)

    def result(self) -> np.ndarray:
        return np.asarray(self._out)

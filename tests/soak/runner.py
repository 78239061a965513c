"""runner.py: threads that do workloads at random, and what they find."""

from __future__ import annotations

import faulthandler
import random
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import machine
import numpy as np
from workloads import Workload
from workloads.disturbances import changed_options
from workloads.faults import ExpectedError


@dataclass(frozen=True)
class Step:
    """One call of a workload.

    Attributes:
        workload: what is called.
        seed: of the generator that it is given.
        began: when, on the clock ``time.monotonic``.
    """

    workload: Workload
    seed: int
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return f"{self.workload.__name__}:{self.seed}"

    def run(self) -> str:
        """Does it, mostly on the first device; says what is wrong, if anything is."""
        rng = random.Random(self.seed)
        device = machine.DEVICES[-1] if rng.random() < 0.2 else machine.DEVICE
        try:
            with jax.default_device(device):
                for i, (got, want) in enumerate(self.workload(rng)):
                    if not _equal(got, want):
                        return f"check {i}: got\n{got}\nbut this is right:\n{want}"
        except Exception:
            return traceback.format_exc()
        return ""


def _equal(got: Any, want: Any) -> bool:
    if isinstance(want, np.ndarray):
        return np.array_equal(np.asarray(got), want)
    return bool(got == want)


@dataclass
class Runner:
    """Does steps, on many threads or on this one, and reports what fails.

    Attributes:
        workloads: with how often each is taken, relative to the others.
        seed: of all.
        patience: seconds after which a step hangs: all stacks are printed, and the process ends.
        most_failures: after which no thread begins another step.
    """

    workloads: Mapping[Workload, float]
    seed: str
    patience: float
    most_failures: int = 5
    failures: int = 0
    done: Counter[str] = field(default_factory=Counter)
    _steps: dict[int, Step] = field(default_factory=dict)  # that are under way, by thread
    _slow: set[Step] = field(default_factory=set)
    # Again, where garbage is collected inside that reports something.
    _lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        faulthandler.enable()
        sys.unraisablehook = self._unraisable
        warnings.showwarning = self._warning

    def run_threads(self, count: int, seconds: float, name: str, tick: Callable[[], None]) -> None:
        """Does steps on threads for some seconds; the threads are new each time."""
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self._work, args=(f"{self.seed}/{name}/{i}", end), daemon=True)
            for i in range(count)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self._watch()
            tick()
            time.sleep(0.5)

    def run_here(self, workloads: Sequence[Workload], name: str) -> None:
        """Does each once, on this thread."""
        for workload in workloads:
            faulthandler.dump_traceback_later(self.patience, exit=True)
            self.do(Step(workload, random.Random(f"{self.seed}/{name}").getrandbits(32)))

    def do(self, step: Step) -> None:
        """Does a step and counts it."""
        with self._lock:
            self._steps[threading.get_ident()] = step
        wrong = step.run()
        with self._lock:
            del self._steps[threading.get_ident()]
            self.done[step.workload.__name__] += 1
        if wrong:
            self.fail(f"{step} failed", wrong)

    def fail(self, what: str, why: str) -> None:
        """Reports a failure."""
        with self._lock:
            self.failures += 1
            print(f"\n{what} (options: {changed_options()})\n{why}", file=sys.stderr, flush=True)

    def _work(self, seed: str, end: float) -> None:
        rng = random.Random(seed)
        workloads, weights = list(self.workloads), list(self.workloads.values())
        while time.monotonic() < end and self.failures < self.most_failures:
            [workload] = rng.choices(workloads, weights)
            self.do(Step(workload, rng.getrandbits(32)))

    def _watch(self) -> None:
        """Unless a step hangs, puts off the end of the process, with the stacks of all threads.

        The dump needs no interpreter lock, and is still to come when the process ends.
        """
        now = time.monotonic()
        with self._lock:
            slow = {step for step in self._steps.values() if now - step.began > self.patience / 2}
        if not slow:
            faulthandler.dump_traceback_later(self.patience / 2, exit=True)
        for step in slow - self._slow:
            print(f"\nslow: {step}, {now - step.began:.0f} s so far", file=sys.stderr, flush=True)
        self._slow = slow

    def _warning(self, message: Any, category: Any, filename: str, line: int, *_: Any) -> None:
        self.fail(f"a warning in {filename}:{line}", f"{category.__name__}: {message}")

    def _unraisable(self, what: Any) -> None:
        """An exception in a handler or in a finalizer, which Python only reports."""
        if what.exc_type is ExpectedError:
            return
        text = "".join(
            traceback.format_exception(what.exc_type, what.exc_value, what.exc_traceback)
        )
        self.fail(f"an exception that Python ignores: {what.err_msg} {what.object!r}", text)

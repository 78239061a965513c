"""python tests/soak [SECONDS]: many threads use the package at random, for as long as told.

They call regions and kernels and encode, also by mistake, while options change, caches are
emptied and other libraries use the GPU. A run fails if a value is wrong, if a step hangs (then the
stacks of all threads are printed), or if memory, file descriptors, threads or maps grow. It has
rounds; after each, when all threads have ended and caches are empty, growth.py takes a sample.

A failure names its step, which `--again NAME:SEED` does again and again, on all threads.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
import time

# A shorter run warms up all the time, and is not held against growth.
LEAST_SECONDS = 60
ROUNDS, FEW_ROUNDS = 12, 3


def main() -> int:
    arguments = _parse()
    # Before JAX is imported.
    os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with tempfile.TemporaryDirectory(prefix="jax_graphenc_soak_") as folder:
        os.environ["JAX_GRAPHENC_CACHE_DIR"] = folder
        return Soak(arguments).run()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/soak", description=__doc__.splitlines()[0])
    parser.add_argument("seconds", nargs="?", type=float, default=60, help="default: 60")
    parser.add_argument("--quick", action="store_true", help="6 seconds, 4 threads")
    parser.add_argument("--threads", type=int, default=16, help="default: 16")
    parser.add_argument("--seed", default=str(random.getrandbits(32)), help="of another run")
    parser.add_argument("--only", default="", help="workloads whose names match")
    parser.add_argument("--again", default="", metavar="NAME:SEED", help="one step, all the time")
    parser.add_argument("--patience", type=float, default=180, help="seconds until a step hangs")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.seconds, arguments.threads = 6, 4
    return arguments


class Soak:
    """A run: rounds, and what is measured between them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import runner
        import workloads.all as known

        self._arguments = arguments
        self._alone = [w for w in known.ALONE if re.search(arguments.only, w.__name__)]
        chosen = {w: n for w, n in known.WORKLOADS.items() if re.search(arguments.only, w.__name__)}
        if not chosen:
            raise SystemExit(f"no workload matches {arguments.only!r}")
        if arguments.again:
            chosen = {known.again(arguments.again): 1}
            self._alone = []
        self._runner = runner.Runner(chosen, arguments.seed, arguments.patience)
        self._samples: list[dict[str, int]] = []
        self._began = time.monotonic()
        self._rounds = ROUNDS if arguments.seconds >= LEAST_SECONDS else FEW_ROUNDS

    def run(self) -> int:
        """Returns the exit status."""
        import machine

        a = self._arguments
        print(
            f"soak of {a.seconds:g} s on {machine.DEVICE}: {a.threads} threads, --seed {a.seed}, "
            f"process {os.getpid()}",
            flush=True,
        )
        for i in range(self._rounds):
            if self._runner.failures < self._runner.most_failures:
                left = a.seconds - (time.monotonic() - self._began)
                length = max(left / (self._rounds - i), 0.1)
                self._runner.run_threads(a.threads, length, f"round {i}", self._tick)
                self._runner.run_here(self._alone, f"round {i}")
                self._rest()
        return self._verdict()

    def _rest(self) -> None:
        """Forgets what can be forgotten, and measures what is left."""
        import growth
        import jax
        from workloads import disturbances

        import jax_graphenc as jge

        disturbances.restore_defaults()
        jax.clear_caches()
        jge.clear_caches()
        self._samples.append(growth.sample())
        held = ", ".join(f"{name} {growth.show(name, n)}" for name, n in self._samples[-1].items())
        self._line(held, end="\n")

    def _tick(self) -> None:
        if sys.stdout.isatty():
            self._line("", end="")

    def _line(self, more: str, end: str) -> None:
        done, failures = self._runner.done.total(), self._runner.failures
        spent = time.monotonic() - self._began
        start = "\r" if sys.stdout.isatty() else ""
        line = f"{start}{spent:5.0f} s  {done:,} steps  {failures} failures  {more}"
        print(line, end=end, flush=True)

    def _verdict(self) -> int:
        import growth

        failures = self._runner.failures
        if len(self._samples) == ROUNDS:
            grown = growth.growth(self._samples)
            print("growth: " + ", ".join(f"{n} {growth.show(n, by)}" for n, by in grown.items()))
            for complaint in growth.too_much(grown):
                self._runner.fail("growth", complaint)
            failures = self._runner.failures
        width = max(map(len, self._runner.done), default=0)
        for name, count in sorted(self._runner.done.items()):
            print(f"  {name:{width}} {count:8,}")
        print("FAILED" if failures else "passed", f"--seed {self._arguments.seed}")
        return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

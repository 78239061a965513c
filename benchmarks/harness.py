"""``Setup``: measures the ways of all peers in turn, and checks their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from records import Row, row
from ways import Way

from jax_graphenc.base.timing import alternate

SLOW_US = 20_000  # a way that takes longer per call gets only its wall time


@dataclass
class Setup:
    """The argument of a part.

    Attributes:
        peers: by name; always with the package's own, "jge.graph" and "cuda_kernel".
        quick: whether the run only shows that everything runs.
        gpu: whether there is a GPU.
        left_out: the works that a peer failed at, and why.
    """

    peers: Mapping[str, Any]
    quick: bool
    gpu: bool
    left_out: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 30

    def ways(self, work: Any) -> dict[str, Way]:
        """The ways to do a work; leaves out and reports a peer that fails at it."""
        found: dict[str, Way] = {}
        for name, peer in self.peers.items():
            try:
                made = peer.ways(work)
            except Exception as error:
                self.leave_out(work, name, error)
                continue
            for way, each in made.items():
                try:
                    each.wall()
                except Exception as error:
                    self.leave_out(work, way, error)
                else:
                    found[way] = each
        return found

    def measure(self, work: Any, ways: Mapping[str, Way] | None = None) -> list[Row]:
        """A row for each way with a right result, and kind of measurement."""
        found = dict(self.ways(work) if ways is None else ways)
        runs = self._runs(found)
        values = alternate(runs, rounds=self.rounds, warmup=1 if self.quick else 5)
        for name, way in list(found.items()):
            try:
                check(way, work, name)
            except AssertionError as error:
                if ways is not None:
                    raise
                self.leave_out(work, name, error)
                del found[name]
        return [
            row(work.case, name, kind, each, "nodes" if kind == "patched" else "us")
            for (name, kind), each in values.items()
            if name in found
        ]

    def _runs(self, ways: Mapping[str, Way]) -> dict[tuple[str, str], Callable[[], float]]:
        """The measurements by way and kind; slow ways get only their wall time."""
        runs: dict[tuple[str, str], Callable[[], float]] = {}
        for name, way in ways.items():
            slow = min(way.wall() for _ in range(3)) > SLOW_US
            kinds = [kind for kind in way.kinds if kind == "wall" or not slow]
            runs.update({(name, kind): getattr(way, kind) for kind in kinds})
        return runs

    def leave_out(self, work: Any, name: str, error: Exception) -> None:
        """Records a peer's failure; raises the package's own."""
        if getattr(self.peers.get(name), "ours", False):
            raise error
        reason = f"{type(error).__name__}: {str(error).strip()}"
        self.left_out.append({**work.case, "way": name, "reason": reason[:500]})
        print(f"{name} was left out of {work}: {reason}")


def check(way: Way, work: Any, name: str) -> None:
    """Compares a way's last result with what its calls must give.

    Raises:
        AssertionError: if it is wrong.
    """
    want = np.broadcast_to(np.asarray(work.expected(way.calls), np.float32), work.shape)
    np.testing.assert_array_equal(way.result(), want, err_msg=f"{name}: {work}")

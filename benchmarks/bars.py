"""Bars for the measured values: ratios to the peers, and a few absolute limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from records import Row

OURS, BARE, TUNED = "jge.graph", "FFI call", "XLA, tuned"
BESIDE = "jge.graph beside it"  # in the process of the tuned XLA
INDEPENDENT = {"work": "independent", "kernels": 64}
VMAP = {"work": "vmap", "kernels": 64}
LOOP_1 = {"work": "loop", "iterations": 200, "kernels per iteration": 1}
LOOP_10 = {"work": "loop", "iterations": 200, "kernels per iteration": 10}
REPEAT = {"work": "chain", "kernels": 1000, "addresses": "repeat"}
MOVE = {"work": "chain", "kernels": 1000, "addresses": "move"}
FIRST = {"work": "first call", "process": "this"}
LONE = {"work": "lone kernels", "kernels": 200}
TWO = {"work": "sharded call", "kernels": 1000}

Case = dict[str, Any]
Get = Callable[..., float]

# The comparison, "at least" or "at most", the limit, and the measured value.
BARS: tuple[tuple[str, str, float, Callable[[Get], float]], ...] = (
    *(
        (f"{name}, {kind}: times faster than FFI calls", "at least", least, value)
        for name, case, ours, least in (
            ("64 independent kernels", INDEPENDENT, OURS, 10),
            ("vmap over 64 kernels", VMAP, "cuda_kernel", 10),
            ("200 iterations of 1 kernel", LOOP_1, OURS, 10),
            ("200 iterations of 10 kernels", LOOP_10, OURS, 1.3),
            ("chain of 1000, addresses move", MOVE, OURS, 1),
        )
        for kind in ("queued", "wall")
        for value in [
            lambda get, c=case, o=ours, k=kind: get(c, BARE, k) / get(c, o, k),
        ]
    ),
    *(
        (f"{name}, queued: times faster than FFI calls under tuned XLA", "at least", 1, value)
        for name, case in (
            ("64 independent kernels", INDEPENDENT),
            ("vmap over 64 kernels", VMAP),
            ("200 iterations of 1 kernel", LOOP_1),
            ("200 iterations of 10 kernels", LOOP_10),
            ("chain of 1000, addresses repeat", REPEAT),
            ("chain of 1000, addresses move", MOVE),
        )
        for value in [lambda get, c=case: get(c, TUNED, "queued") / get(c, BESIDE, "queued")]
    ),
    *(
        (f"{name}, wall: times faster than Warp's best mode", "at least", 1.2, value)
        for name, case in (
            ("64 independent kernels", INDEPENDENT),
            ("200 iterations of 1 kernel", LOOP_1),
            ("200 iterations of 10 kernels", LOOP_10),
            ("chain of 1000, addresses repeat", REPEAT),
            ("chain of 1000, addresses move", MOVE),
        )
        for value in [lambda get, c=case: get(c, "Warp", "wall") / get(c, OURS, "wall")]
    ),
    *(
        (f"chain of 1000, addresses repeat, {kind}: over {other}", "at most", most, value)
        for other, kind, most in (
            (BARE, "queued", 1.03),
            (BARE, "wall", 1.03),
            ("raw graph", "queued", 1.05),
        )
        for value in [lambda get, o=other, k=kind: get(REPEAT, OURS, k) / get(REPEAT, o, k)]
    ),
    (
        "chain of 1000, addresses repeat: host us of a call",
        "at most",
        60,
        lambda get: get(REPEAT, OURS, "host"),
    ),
    (
        "chain of 1000, addresses move: nodes patched per call",
        "at most",
        16,
        lambda get: get(MOVE, OURS, "patched", "mean"),
    ),
    (
        "trace and compile of 1000: over FFI calls",
        "at most",
        0.5,
        lambda get: (
            get({**FIRST, "kernels": 1000}, OURS, "before the run")
            / get({**FIRST, "kernels": 1000}, BARE, "before the run")
        ),
    ),
    (
        "trace and compile of 10,000: per kernel, over 1000",
        "at most",
        1.25,
        lambda get: (
            get({**FIRST, "kernels": 10_000}, OURS, "before the run")
            / get({**FIRST, "kernels": 1000}, OURS, "before the run")
            / 10
        ),
    ),
    (
        "a kernel outside a region: host us over an FFI call",
        "at most",
        1,
        lambda get: (get(LONE, "cuda_kernel", "host") - get(LONE, BARE, "host")) / 200,
    ),
    (
        "a region on each of two devices: wall over one device",
        "at most",
        1.15,
        lambda get: get(TWO, "two devices", "wall") / get(TWO, "one device", "wall"),
    ),
)


def judge(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The bars whose values were measured."""

    def get(case: Case, way: str, kind: str, statistic: str = "median") -> float:
        """A statistic of a way; for Warp of the fastest of its modes."""
        wanted = {**case, "kind": kind}
        names = [way] if way != "Warp" else {r["way"] for r in rows if r["way"].startswith("Warp")}
        return min(r[statistic] for r in rows if wanted.items() <= r.items() and r["way"] in names)

    for what, asked, limit, value in BARS:
        try:
            measured = value(get)
        except ValueError:  # of min: nothing was measured
            continue
        met = measured >= limit if asked == "at least" else measured <= limit
        yield {"what": what, "measured": round(measured, 4), "bar": f"{asked} {limit}", "met": met}

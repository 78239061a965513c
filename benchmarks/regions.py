"""Regions against one FFI call per kernel, NVIDIA Warp's callables and one raw graph.

In one process, alternating:

    ours           ``jge.graph``
    bare           a bare FFI handler per kernel, which XLA captures in its command buffers
    warp, MODE     one ``jax_callable`` of all launches, by graph mode; left out without warp-lang
    raw            ``cuGraphLaunch`` of one uncut graph, for the chain

Every function is held to its right result. ``queued`` is the time per call of ten in a row, each on
the last one's result, so that the host's part is hidden. Needs a GPU, g++, cuda.h and rich.

    python benchmarks/regions.py [--out result.json] [--only PART ...]
    python benchmarks/regions.py --cpu    only shows that all of it runs
"""

from __future__ import annotations

import argparse
import collections
import gc
import itertools
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chain as raw_chain
import harness
import jax
import jax.numpy as jnp
import numpy as np
from bare import Bare
from cuda.bindings import driver
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from rich.console import Console
from rich.table import Table

import jax_graphenc as jge
from jax_graphenc.primitives import program_p
from jax_graphenc.region import trace
from jax_graphenc.rewrite import Rewriter
from jax_graphenc.target import target_of

try:
    import warp_callables
except ImportError:
    warp_callables = None

SIZE = 4096
ROW = 256  # floats that one block works on
QUEUED = 10
# As many results are kept where addresses are to move: more than anybody's cache has places.
KEPT = 64

SPIN = r"""
extern "C" __global__ void spin(const float* x, float* out, float a, int n) {
  float value = x[threadIdx.x];
  for (int i = 0; i < n; ++i) value = fmaf(value, 1.0f, a);
  out[threadIdx.x] = value;
}
"""

Kernel = Callable[[jax.Array, float, int], jax.Array]


@dataclass(frozen=True)
class Sizes:
    """How much is measured; the second is for a look without a GPU."""

    independent: int = 64
    spin_us: float = 17.0
    iterations: int = 200
    bodies: tuple[int, ...] = (1, 10)
    chain: int = raw_chain.KERNELS
    first_calls: tuple[int, ...] = (1000, 2000, 5000, 10_000)
    thresholds: tuple[int, ...] = (1, 2, 3, 5, 10, 20, 50, 100, 200)
    regions: int = 8
    rounds: int = 30
    threshold_rounds: int = 20


SMALL = Sizes(
    independent=4,
    spin_us=1.0,
    iterations=6,
    bodies=(1, 2),
    chain=8,
    first_calls=(4, 8),
    thresholds=(1, 3),
    regions=2,
    rounds=2,
    threshold_rounds=2,
)


@dataclass(frozen=True)
class Kernels:
    """The same two kernels, as ours and as bare FFI calls."""

    add: Kernel
    spin: Kernel
    bare_add: Kernel
    bare_spin: Kernel


def our_kernels() -> tuple[Kernel, Kernel]:
    add = jge.cuda_kernel(
        harness.ADD, "add", out_shape=lambda x, **_: x, grid=-(-SIZE // 256), block=256
    )
    spin = jge.cuda_kernel(SPIN, "spin", out_shape=lambda x, **_: x, grid=1, block=ROW)
    return (lambda x, a, n: add(x, a=a, n=n)), (lambda x, a, n: spin(x, a=a, n=n))


# ---------------------------------------------------------------------- measuring


@dataclass
class Way:
    """A jitted function, called again and again; counts its calls, to know what it must return.

    Attributes:
        function: takes and returns an array.
        x: the argument of the first call.
        kinds: what is measured of it: names of its methods.
        feed: whether a result is the next call's argument.
        keep: how many arguments stay alive after their call, so that addresses move.
        calls: how many there were.
        patched: nodes that our executable graphs were told anew, by measurement.
    """

    function: Callable[[jax.Array], jax.Array]
    x: jax.Array
    kinds: tuple[str, ...] = ("host", "wall")
    feed: bool = True
    keep: int = 0
    calls: int = 0
    patched: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._kept: collections.deque[jax.Array] = collections.deque(maxlen=self.keep)

    def _call(self, x: jax.Array) -> jax.Array:
        self.calls += 1
        self._kept.append(x)
        return self.function(x)

    def _several(self, x: jax.Array) -> jax.Array:
        out = x
        for _ in range(QUEUED):
            out = self._call(x)
            if self.feed:
                x = out
        return out

    def _measure(
        self, seconds: Callable[..., tuple[float, Any]], function: Any, x: Any = None
    ) -> float:
        before = jge.stats()["nodes_patched"]
        elapsed, self.result = seconds(function, self.x if x is None else x)
        self.patched.append(jge.stats()["nodes_patched"] - before)
        if self.feed:
            self.x = self.result
        return 1e6 * elapsed

    def host(self) -> float:
        """Microseconds until a call is dispatched that follows another at once.

        A first call after waiting for the device also wakes the processor and fills its caches,
        which took several times as long on the machine that this was written for.
        """
        x = self._call(self.x)
        return self._measure(harness.dispatch_seconds, self._call, x if self.feed else self.x)

    def wall(self) -> float:
        """Microseconds until a call's result is there."""
        return self._measure(harness.wall_seconds, self._call)

    def queued(self) -> float:
        """Microseconds per call of several in a row."""
        return self._measure(harness.wall_seconds, self._several) / QUEUED


def measured(ways: Mapping[str, Any], rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """By way, then by kind: microseconds per call."""
    runs = {(name, kind): getattr(way, kind) for name, way in ways.items() for kind in way.kinds}
    values = harness.alternate(runs, rounds=rounds)
    return {
        name: {f"{kind} us": harness.summary(values[name, kind]) for kind in way.kinds}
        for name, way in ways.items()
    }


def check(ways: Mapping[str, Way], expected: Callable[[int], Any], what: str) -> None:
    """Holds each way's last result against what as many calls give."""
    for name, way in ways.items():
        want = np.broadcast_to(expected(way.calls), way.result.shape).astype(np.float32)
        np.testing.assert_array_equal(way.result, want, err_msg=f"{what}: {name}")


@dataclass(frozen=True)
class Bar:
    """What is asked of a measured value."""

    work: str
    what: str
    value: float
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool:
        low, high = self.least or 0, self.most or float("inf")
        return low <= self.value <= high

    @property
    def asked(self) -> str:
        return f"at least {self.least:g}" if self.least is not None else f"at most {self.most:g}"

    def as_json(self) -> dict[str, Any]:
        return {
            "work": self.work,
            "what": self.what,
            "measured": round(self.value, 4),
            "bar": self.asked,
            "met": self.met,
        }


def median(result: Mapping[str, Any], name: str, kind: str) -> float:
    return float(result[name][f"{kind} us"]["median"])


def over_warp(work: str, result: Mapping[str, Any]) -> list[Bar]:
    """The bar over Warp's best mode, where there is Warp."""
    modes = [name for name in result if name.startswith("warp")]
    if not modes:
        return []
    best = min(modes, key=lambda name: median(result, name, "wall"))
    times = median(result, best, "wall") / median(result, "ours", "wall")
    return [Bar(work, f"wall, times faster than {best}", times, least=1.2)]


def over_bare(work: str, result: Mapping[str, Any], least: float) -> list[Bar]:
    """The bar over one FFI call per kernel: for calls in a row, and for one that is waited for.

    The second has the time of an empty jitted call on both sides, which the machine's processor
    sets and no graph can change.
    """
    return [
        Bar(
            work,
            f"{kind}, times faster than bare",
            median(result, "bare", kind) / median(result, "ours", kind),
            least=least,
        )
        for kind in ("queued", "wall")
    ]


def warp_functions(gpu: bool, work: str, *args: Any) -> dict[str, Callable[[jax.Array], Any]]:
    """What ``warp_callables`` has for a work, per mode of Warp's; a CPU takes the first alone."""
    if warp_callables is None:
        return {}

    def first(function: Any) -> Callable[[jax.Array], Any]:
        return lambda x: function(x)[0]

    make = getattr(warp_callables, work)
    modes = list(warp_callables.MODES.items())[: None if gpu else 1]
    return {f"warp, {name}": first(make(*args, mode)) for name, mode in modes}


def ways_of(
    functions: Mapping[str, Callable[[jax.Array], jax.Array]],
    x: Callable[[], jax.Array],
    kinds: tuple[str, ...] = ("host", "wall"),
    *,
    donate: bool = False,
    **options: Any,
) -> dict[str, Way]:
    """A way per function; Warp's, of which some take long, are asked for their wall time alone.

    One of Warp's that does not run is left out, and said so.
    """
    ways = {
        name: Way(
            jax.jit(function, donate_argnums=0 if donate else ()),
            x(),
            ("wall",) if name.startswith("warp") else kinds,
            **options,
        )
        for name, function in functions.items()
    }
    for name in [name for name in ways if name.startswith("warp")]:
        try:
            ways[name].wall()
        except Exception as error:
            print(f"{name} was left out: {error}", file=sys.stderr)
            del ways[name]
    return ways


# ---------------------------------------------------------------------- the parts

Part = tuple[dict[str, Any], list[Bar]]


def spin_iterations(spin: Kernel, us: float) -> tuple[int, float]:
    """How often to repeat for a kernel of so many microseconds, and how many one takes."""
    few, many = 50_000, 250_000
    ways = {
        n: Way(jax.jit(lambda x, n=n: spin(x, 1.0, n)), jnp.zeros(ROW), feed=False)
        for n in (few, many)
    }
    walls = {n: way.wall for n, way in ways.items()}
    # So many before they count that the GPU's clock has risen.
    walls = harness.alternate(walls, rounds=20, warmup=300 if us > 2 else 2)
    each = (statistics.median(walls[many]) - statistics.median(walls[few])) / (many - few)
    return max(1, round(us / each)), each


def independent(kernels: Kernels, sizes: Sizes, gpu: bool) -> Part:
    n, each = spin_iterations(kernels.spin, sizes.spin_us)
    count = sizes.independent

    def rows(spin: Kernel) -> Callable[[jax.Array], jax.Array]:
        def run(x: jax.Array) -> jax.Array:
            pieces = [spin(x, float(i), n) for i in range(count)]
            return jnp.concatenate(pieces).reshape(count, ROW)

        return run

    functions = {
        "ours": jge.graph(rows(kernels.spin), strict=True),
        "bare": rows(kernels.bare_spin),
        **warp_functions(gpu, "independent", count, n),
    }
    work = f"{count} independent kernels of one block"
    x = jnp.arange(ROW, dtype=jnp.float32)
    ways = ways_of(functions, lambda: x, ("host", "wall", "queued"), feed=False)
    result = measured(ways, sizes.rounds)
    check(ways, lambda _: x + n * np.arange(count)[:, None], work)
    bars = [*over_bare(work, result, 10), *over_warp(work, result)]
    return {work: {"repetitions": n, "ns of one": 1e3 * each, **result}}, bars


def batch(kernels: Kernels, sizes: Sizes, gpu: bool) -> Part:
    """``jax.vmap`` of a kernel of one block: our nodes, and a bare call's sequential method."""
    n, _ = spin_iterations(kernels.spin, sizes.spin_us)
    count = sizes.independent
    x = jnp.arange(count * ROW, dtype=jnp.float32).reshape(count, ROW)
    spins = {"ours": kernels.spin, "bare": kernels.bare_spin}
    functions = {
        name: jax.vmap(lambda row, spin=spin: spin(row, 1.0, n)) for name, spin in spins.items()
    }
    ways = ways_of(functions, lambda: x, ("host", "wall", "queued"), feed=False)
    result = measured(ways, sizes.rounds)
    work = f"vmap over {count} of a kernel of one block"
    check(ways, lambda _: x + n, work)
    return {work: result}, over_bare(work, result, 10)


def loops(kernels: Kernels, sizes: Sizes, gpu: bool) -> Part:
    results: dict[str, Any] = {}
    bars: list[Bar] = []
    for body, least in zip(sizes.bodies, (10, 1.3), strict=True):

        def looped(add: Kernel, body: int = body) -> Callable[[jax.Array], jax.Array]:
            def step(_: Any, x: jax.Array) -> jax.Array:
                for _ in range(body):
                    x = add(x, 1.0, SIZE)
                return x

            return lambda x: jax.lax.fori_loop(0, sizes.iterations, step, x)

        total = sizes.iterations * body
        functions = {
            "ours": jge.graph(looped(kernels.add), strict=True),
            "bare": looped(kernels.bare_add),
            **warp_functions(gpu, "chain", total),
        }
        ways = ways_of(functions, zeros, ("host", "wall", "queued"), donate=True)
        result = measured(ways, sizes.rounds)
        work = f"counted loop, {sizes.iterations} iterations of {body}"
        check(ways, lambda calls, total=total: calls * total, work)
        results[work] = result
        bars += [*over_bare(work, result, least), *over_warp(work, result)]
    return results, bars


class Raw:
    """The chain as one graph of the driver's; measured like a ``Way``."""

    kinds = ("wall", "queued")

    def __init__(self) -> None:
        self.graph = raw_chain.RawGraph(harness.add_cubin())
        self.calls = 0
        raw_chain.check(driver.cuMemsetD32(self.graph.arrays[0], 0, SIZE))
        # The graph's stream does not wait for the one of the memset.
        raw_chain.check(driver.cuCtxSynchronize())

    def _launch(self, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            raw_chain.check(driver.cuGraphLaunch(self.graph.exec, self.graph.stream))
        raw_chain.check(driver.cuStreamSynchronize(self.graph.stream))
        self.calls += times
        return 1e6 * (time.perf_counter() - start)

    def wall(self) -> float:
        return self._launch(1)

    def queued(self) -> float:
        return self._launch(QUEUED) / QUEUED

    def check(self) -> None:
        got = np.empty(SIZE, np.float32)
        raw_chain.check(driver.cuMemcpyDtoH(got.ctypes.data, self.graph.arrays[0], got.nbytes))
        np.testing.assert_array_equal(got, self.calls * raw_chain.KERNELS, err_msg="raw graph")


def zeros() -> jax.Array:
    return jnp.zeros(SIZE)


def chained(add: Kernel, count: int) -> Callable[[jax.Array], jax.Array]:
    def run(x: jax.Array) -> jax.Array:
        for _ in range(count):
            x = add(x, 1.0, SIZE)
        return x

    return run


def chain(kernels: Kernels, sizes: Sizes, gpu: bool) -> Part:
    count = sizes.chain
    results: dict[str, Any] = {}
    bars: list[Bar] = []
    for moving in (False, True):
        work = f"chain of {count}, addresses {'move' if moving else 'repeat'}"
        functions = {
            "ours": jge.graph(chained(kernels.add, count), strict=True),
            "bare": chained(kernels.bare_add, count),
            **warp_functions(gpu, "chain_out_of_place" if moving else "chain", count),
        }
        kinds = ("host", "wall", "queued")
        keep = KEPT if moving else 0
        ways = ways_of(functions, zeros, kinds, donate=not moving, keep=keep)
        raw = {"raw": Raw()} if gpu and not moving else {}
        result = measured({**ways, **raw}, sizes.rounds)
        check(ways, lambda calls: calls * count, work)
        # Without the first rounds, in which graphs are made.
        patched = sum(ways["ours"].patched[-len(kinds) * sizes.rounds :])
        each = patched / (sizes.rounds * (1 + 1 + QUEUED))
        results[work] = {"nodes patched per call": each, **result}
        if moving:
            bars += over_bare(work, result, 1)
            bars.append(Bar(work, "nodes patched per call", each, most=16))
        else:
            for kind in ("wall", "queued"):
                over = median(result, "ours", kind) / median(result, "bare", kind)
                bars.append(Bar(work, f"{kind} over bare", over, most=1.03))
            if raw:
                raw["raw"].check()
                over = median(result, "ours", "queued") / median(result, "raw", "queued")
                bars.append(Bar(work, "queued over one raw graph", over, most=1.05))
            bars.append(Bar(work, "host us", median(result, "ours", "host"), most=60))
        bars += over_warp(work, result)
    return results, bars


def first_call(kernels: Kernels, sizes: Sizes, gpu: bool) -> Part:
    """Tracing, lowering and compiling, with the kernels themselves compiled already."""

    def timed(function: Callable[[jax.Array], jax.Array], count: int) -> dict[str, float]:
        gc.collect()
        x = zeros()
        times = [time.perf_counter()]
        lowered = jax.jit(function).lower(x)
        times.append(time.perf_counter())
        compiled = lowered.compile()
        times.append(time.perf_counter())
        out = jax.block_until_ready(compiled(x))
        times.append(time.perf_counter())
        np.testing.assert_array_equal(out, np.full(SIZE, count, np.float32))
        trace_s, compile_s, run_s = (b - a for a, b in itertools.pairwise(times))
        return {"trace and lower": trace_s, "compile": compile_s, "first run": run_s}

    def ours(count: int) -> dict[str, float]:
        return timed(jge.graph(chained(kernels.add, count)), count)

    def bare(count: int) -> dict[str, float]:
        return timed(chained(kernels.bare_add, count), count)

    ours(2), bare(2)
    few = sizes.first_calls[0]
    runs: dict[str, list[dict[str, float]]] = {f"bare, {few}": []}
    for _ in range(3):
        runs[f"bare, {few}"].append(bare(few))
        for count in sizes.first_calls:
            runs.setdefault(f"ours, {count}", []).append(ours(count))

    result = {
        name: {f"{kind} s": statistics.median(time[kind] for time in times) for kind in times[0]}
        | {"before the run s": statistics.median(sum(t.values()) - t["first run"] for t in times)}
        for name, times in runs.items()
    }
    total = {name: each["before the run s"] for name, each in result.items()}
    most = sizes.first_calls[-1]
    growth = (total[f"ours, {most}"] / most) / (total[f"ours, {few}"] / few)
    work = f"trace and compile of {few}"
    bars = [
        Bar(work, "over bare", total[f"ours, {few}"] / total[f"bare, {few}"], most=0.5),
        Bar(f"the same of {most}", f"per kernel, over that of {few}", growth, most=1.25),
    ]
    return {work: result}, bars


def forced(
    function: Callable[[jax.Array], jax.Array], uncaptured: bool, gpu: bool
) -> Callable[[jax.Array], jax.Array]:
    """A region as one program that XLA captures, or does not, whatever the package would choose."""
    jaxpr, _ = trace(function, zeros())
    new = Rewriter("chain", target_of("cuda" if gpu else "cpu")).rewrite(jaxpr).jaxpr
    (program,) = new.eqns
    assert program.primitive is program_p
    program = program.replace(params={**program.params, "uncaptured": uncaptured})
    run = jaxpr_as_fun(ClosedJaxpr(new.replace(eqns=[program]), ()))
    return lambda x: run(x)[0]


def threshold(kernels: Kernels, sizes: Sizes, gpu: bool) -> Part:
    """From how many nodes on a program should stay out of XLA's command buffers."""

    def between(operations: int) -> Any:
        """One region, half of the operations before it and half after."""

        def others(x: jax.Array) -> jax.Array:
            for _ in range(operations // 2):
                x = jax.lax.optimization_barrier(x + 1)  # each a kernel of XLA's
            return x

        return lambda region: lambda x: others(region(others(x)))

    def several(region: Any) -> Any:
        def run(x: jax.Array) -> jax.Array:
            for _ in range(sizes.regions):
                x = region(x) + 1
            return x

        return run

    # What it is: the function, how many regions it holds, and how many operations of XLA's.
    shapes = {
        "one region alone": (between(0), 1, 0),
        "one region between 2 operations": (between(2), 1, 2),
        "one region between 8 operations": (between(8), 1, 8),
        f"{sizes.regions} regions, an operation after each": (
            several,
            sizes.regions,
            sizes.regions,
        ),
    }
    results: dict[str, Any] = {}
    for (shape, (place, regions, operations)), moving in itertools.product(
        shapes.items(), (False, True)
    ):
        work = f"{shape}, addresses {'move' if moving else 'repeat'}"
        rows: dict[int, Any] = {}
        for count in sizes.thresholds:
            run = chained(kernels.add, count)
            functions = {
                "captured": place(forced(run, False, gpu)),
                "uncaptured": place(forced(run, True, gpu)),
            }
            ways = ways_of(functions, zeros, donate=not moving, keep=KEPT if moving else 0)
            before = jge.stats()["captured_nodes"]
            result = measured(ways, sizes.threshold_rounds)
            captured = jge.stats()["captured_nodes"] > before
            per_call = regions * count + operations
            check(ways, lambda calls, n=per_call: calls * n, f"{work}: {count}")
            rows[count] = {
                "XLA captured": captured,
                **{
                    way: {kind: median(result, way, kind) for kind in ("host", "wall")}
                    for way in ways
                },
            }
        pays = {kind: pays_from(rows, kind) for kind in ("host", "wall")}
        results[work] = {"us by kernels": rows, "uncaptured pays from": pays}
    return {"threshold": results}, []


def pays_from(rows: Mapping[int, Any], kind: str) -> int | None:
    """The least number of kernels from which on staying uncaptured takes at most 1 % longer."""
    pays = None
    for count, row in reversed(rows.items()):
        if row["uncaptured"][kind] > 1.01 * row["captured"][kind]:
            break
        pays = count
    return pays


PARTS: dict[str, Callable[[Kernels, Sizes, bool], Part]] = {
    "independent": independent,
    "batch": batch,
    "loops": loops,
    "chain": chain,
    "first-call": first_call,
    "threshold": threshold,
}

# ---------------------------------------------------------------------- showing


def show_threshold(console: Console, results: Mapping[str, Any]) -> None:
    for work, found in results.items():
        table = Table(title=f"{work}: captured / uncaptured")
        for column in ("kernels", "XLA captured", "host us", "wall us"):
            table.add_column(column, justify="right")
        for count, row in found["us by kernels"].items():
            pairs = [
                f"{row['captured'][kind]:.1f} / {row['uncaptured'][kind]:.1f}"
                for kind in ("host", "wall")
            ]
            table.add_row(str(count), "yes" if row["XLA captured"] else "no", *pairs)
        console.print(table)
        pays = found["uncaptured pays from"]
        console.print(f"uncaptured pays from: host {pays['host']}, wall {pays['wall']} kernels\n")


def show_medians(console: Console, work: str, result: Mapping[str, Any]) -> None:
    table = Table(title=f"{work}: medians")
    timed = {way: times for way, times in result.items() if isinstance(times, dict)}
    columns = list(dict.fromkeys(kind for times in timed.values() for kind in times))
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    for way, times in timed.items():
        cells = (times.get(column) for column in columns)
        shown = (cell["median"] if isinstance(cell, dict) else cell for cell in cells)
        table.add_row(way, *("" if value is None else f"{value:.4g}" for value in shown))
    console.print(table)


def show_bars(console: Console, bars: list[Bar]) -> None:
    table = Table(title="bars")
    for column in ("work", "what", "measured", "asked", "met"):
        table.add_column(column)
    for bar in bars:
        met = "[green]yes" if bar.met else "[red]no"
        table.add_row(bar.work, bar.what, f"{bar.value:.4g}", bar.asked, met)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--cpu", action="store_true", help="a small dry run; its times mean nothing"
    )
    options = parser.parse_args()
    gpu = not options.cpu
    if options.cpu:
        jax.config.update("jax_platforms", "cpu")
    elif jax.default_backend() != "gpu":
        sys.exit("no GPU here: this benchmark measures launches on one")
    sizes = Sizes() if gpu else SMALL

    console = Console(width=None if sys.stdout.isatty() else 120)
    results: dict[str, Any] = {}
    bars: list[Bar] = []
    seconds: dict[str, float] = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        add, spin = our_kernels()
        # Without a GPU our own lone kernels stand for the bare handler's.
        bare_add, bare_spin = add, spin
        if gpu:
            bare = Bare(Path(folder))
            bare_add = bare.kernel(harness.add_cubin(), "add", -(-SIZE // 256))
            bare_spin = bare.kernel(harness.cubin(SPIN, "spin"), "spin", 1, ROW)
        kernels = Kernels(add, spin, bare_add, bare_spin)
        for name in options.only:
            start = time.perf_counter()
            try:
                result, asked = PARTS[name](kernels, sizes, gpu)
            except Exception:  # the other parts' results are worth keeping
                traceback.print_exc()
                failed.append(name)
                continue
            seconds[name] = round(time.perf_counter() - start, 1)
            results |= result
            bars += asked
            for work, each in result.items():
                if name == "threshold":
                    show_threshold(console, each)
                else:
                    show_medians(console, work, each)
    show_bars(console, bars)
    print(f"seconds: {seconds}")
    if warp_callables is None:
        print("warp-lang is not installed: its callables were left out")
    if options.cpu:
        print("a dry run on the CPU: nothing above is a measurement")
    else:
        harness.write(
            options.out,
            {
                "benchmark": "regions against FFI calls per kernel, Warp and a raw graph",
                "environment": harness.environment(),
                "warp": "installed" if warp_callables else "not installed, left out",
                "results": results,
                "bars": [bar.as_json() for bar in bars],
                "failed": failed,
                "seconds": seconds,
                "stats": jge.stats(),
            },
        )
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

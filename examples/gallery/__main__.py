"""Twelve kernels, each compared with jax.numpy and timed beside it: ``python examples/gallery``.

    python examples/gallery                        all of them
    python examples/gallery softmax n_body         some
    python examples/gallery --size small           quick on a CPU; on a GPU, "large"

Each file is one kernel: its source, a function of the file's name, the same in jax.numpy
(``reference``), inputs, and the supported dtypes. Errors are relative to the largest element of the
reference's result, which is computed in double precision. The exit status is 1 if one is too large.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import jax_graphenc as jge

NAMES = (
    *("transpose", "reduction", "scan", "histogram", "softmax", "rms_norm"),
    *("matmul", "csr_matvec", "n_body", "stencil", "d2q9", "fdtd"),
)


def load(name: str) -> ModuleType:
    """One of the gallery's files, by its name."""
    return importlib.import_module(name)


def inputs(module: ModuleType, dtype: str, size: Any) -> tuple[jax.Array, ...]:
    """The same for the same kernel, dtype and size."""
    return module.inputs(np.random.default_rng(0), dtype, size)


def widened(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x


def relative_error(module: ModuleType, arrays: tuple[jax.Array, ...]) -> float:
    """The kernel's error relative to the largest element; 0 for equal integers."""
    function = getattr(module, module.__name__)
    traced_anew = jax.jit(lambda *xs: function(*xs))  # by the options that hold now
    results = jax.tree.leaves(traced_anew(*arrays))
    exact = jax.jit(module.reference)
    expected = jax.tree.leaves(exact(*map(widened, arrays)))
    errors = []
    for result, wanted in zip(results, expected, strict=True):
        if not jnp.issubdtype(wanted.dtype, jnp.floating):  # bins depend on the rounding
            (wanted,) = jax.tree.leaves(exact(*arrays))
            errors.append(0.0 if np.array_equal(result, wanted) else np.inf)
            continue
        largest = np.max(np.abs(wanted)) or 1.0
        off = np.max(np.abs(np.asarray(result).astype(np.float64) - wanted)) / largest
        errors.append(np.inf if np.isnan(off) else off)  # inf, because max() ignores nan
    return float(max(errors))


def tolerance(module: ModuleType, dtype: str) -> float:
    """The tolerance: one rounding in the stored dtype, 32 in the dtype of the computation.

    Half of a dtype's epsilon is the most that one rounding costs. A sum of n terms is rounded n
    times; these errors mostly cancel, so that the sum of a thread, of up to some thousand terms in
    ``matmul``, is off by about the square root of n of them; warps and blocks add little.
    """
    stored = jnp.finfo(dtype).eps
    computed = jnp.finfo(jnp.promote_types(dtype, jnp.float32)).eps
    return float(stored / 2 + 32 * computed)


def seconds(function: Callable[..., Any], arrays: tuple[jax.Array, ...]) -> float:
    """The median of a call's time, without the first, which compiles."""
    function = jax.jit(function)
    jax.block_until_ready(function(*arrays))
    times: list[float] = []
    while len(times) < 3 or (len(times) < 20 and sum(times) < 0.5):
        start = time.perf_counter()
        jax.block_until_ready(function(*arrays))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Twelve CUDA kernels beside jax.numpy.")
    parser.add_argument("names", nargs="*", metavar="kernel", help=", ".join(NAMES))
    default = "small" if jax.default_backend() == "cpu" else "large"
    parser.add_argument("--size", choices=["small", "large"], default=default, help="(%(default)s)")
    options = parser.parse_args(arguments)
    if wrong := set(options.names) - set(NAMES):
        parser.error(f"no kernel {', '.join(sorted(wrong))}; there are {', '.join(NAMES)}")

    device = str(jge.device_info()).splitlines()[0]
    table = Table(title=f"{device}, {options.size} arrays", title_justify="left")
    for heading in ("kernel", "dtype", "largest error", "accepted", "CUDA, ms", "jax.numpy, ms"):
        table.add_column(heading, justify="left" if heading in ("kernel", "dtype") else "right")
    console, wrong = Console(), []
    with jax.enable_x64(True), console.status("") as progress:
        for name in options.names or NAMES:
            module = load(name)
            for dtype in module.DTYPES:
                progress.update(f"{name}, {dtype}")
                arrays = inputs(module, dtype, getattr(module, options.size.upper()))
                error, accepted = relative_error(module, arrays), tolerance(module, dtype)
                if not error <= accepted:
                    wrong.append(f"{name} of {dtype}")
                table.add_row(
                    name if dtype == module.DTYPES[0] else "",
                    dtype,
                    f"{error:.1e}" if error else "0",
                    f"{accepted:.1e}",
                    *(
                        f"{1e3 * seconds(function, arrays):.3f}"
                        for function in (getattr(module, name), module.reference)
                    ),
                )
    console.print(table)
    if wrong:
        print(f"too far from jax.numpy: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Host cost of a lone kernel call over a bare FFI handler that launches the same kernel.

200 tiny kernels in one jitted call, with XLA's command buffers off, in one process, alternating.
Needs a GPU, g++ and cuda.h.

    python benchmarks/lone_kernel.py [--out result.json]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

COMMAND_BUFFERS_OFF = "--xla_gpu_enable_command_buffer="
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {COMMAND_BUFFERS_OFF}"

import harness  # noqa: E402 - after the flags, which JAX reads once
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from bare import Bare  # noqa: E402

import jax_graphenc as jge  # noqa: E402

KERNELS = 200
SIZE = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    if jax.default_backend() != "gpu":
        sys.exit("no GPU here: this benchmark measures launches on one")

    ours = jge.cuda_kernel(
        harness.ADD,
        "add",
        out_shape=lambda x, **_: x,
        grid=lambda x, **_: jge.cdiv(x.size, 256),
        block=256,
    )

    def chain(add):
        def run(x):
            for _ in range(KERNELS):
                x = add(x)
            return x

        return jax.jit(run, donate_argnums=0)

    with tempfile.TemporaryDirectory() as folder:
        bare = Bare(Path(folder)).kernel(harness.add_cubin(), "add", -(-SIZE // 256))
        functions = {
            "bare": chain(lambda x: bare(x, 1.0, SIZE)),
            "jax_graphenc": chain(lambda x: ours(x, a=1.0, n=SIZE)),
        }
        arrays = {name: jnp.zeros(SIZE) for name in functions}

        def measure(name, seconds):
            def one():
                elapsed, arrays[name] = seconds(functions[name], arrays[name])
                return 1e6 * elapsed / KERNELS

            return one

        ways = {}
        for name in functions:
            ways[f"{name} host us per kernel"] = measure(name, harness.dispatch_seconds)
            ways[f"{name} wall us per kernel"] = measure(name, harness.wall_seconds)
        jge.reset_stats()
        measured = harness.alternate(ways, rounds=options.rounds)
        stats = jge.stats()
        calls = 2 * (options.rounds + 5)
        for name, array in arrays.items():
            expected = np.full(SIZE, KERNELS * calls, np.float32)
            np.testing.assert_array_equal(array, expected, err_msg=name)
        assert stats["captured_nodes"] == 0, "command buffers were meant to be off"
        assert stats["direct_launches"] == KERNELS * calls
    results = {name: harness.summary(values) for name, values in measured.items()}
    ours_us, bare_us = (
        results[f"{name} host us per kernel"]["median"] for name in ("jax_graphenc", "bare")
    )
    harness.write(
        options.out,
        {
            "benchmark": "lone kernel, command buffers off",
            "kernels per call": KERNELS,
            "environment": harness.environment(),
            "results": results,
            "host us per kernel over the bare handler": round(ours_us - bare_us, 3),
            "bar": 1.0,
        },
    )


if __name__ == "__main__":
    main()

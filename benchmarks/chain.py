"""A chain of small kernels in one jitted call: our graphs, direct launches, XLA's command buffers.

The kernel adds 1 to 4096 floats. Also measures how the number of nodes per committed graph matters,
which is where the table of graph limits comes from. Needs a GPU.

    python benchmarks/chain.py [--out result.json]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import harness
import jax
import jax.numpy as jnp
import numpy as np
from cuda.bindings import driver

import jax_graphenc as jge
from jax_graphenc.primitives import program_p
from jax_graphenc.program import Buffer, Kernel, Node, Parameter, Program

KERNELS = 1000
SIZE = 4096
BLOCK = 256


def program(image: bytes) -> Program:
    """x + KERNELS, in place, as one program; the second result is the intermediate."""
    parameters = (
        Parameter("x", True, True, False, 8),
        Parameter("out", True, False, True, 8),
        Parameter("a", False, False, False, 4),
        Parameter("n", False, False, False, 4),
    )
    kernel = Kernel(image, "add", "add", parameters)
    arrays = [Buffer("result", 0, 0, 4 * SIZE), Buffer("result", 1, 0, 4 * SIZE)]
    scalars = (np.float32(1).tobytes(), np.int32(SIZE).tobytes())
    one = (1, 1, 1)
    nodes = tuple(
        Node(
            kernel,
            (-(-SIZE // BLOCK), 1, 1),
            (BLOCK, 1, 1),
            one,
            0,
            False,
            (arrays[i % 2], arrays[1 - i % 2], *scalars),
        )
        for i in range(KERNELS)
    )
    return Program("chain", (4 * SIZE,), (4 * SIZE,) * 2, ((0, 0),), nodes)


def check(result: Any) -> Any:
    """What a function of cuda-python returned, after its status."""
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else values


class RawGraph:
    """One uncut graph of the chain, launched by the driver alone."""

    def __init__(self, image: bytes) -> None:
        check(driver.cuInit(0))
        context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
        check(driver.cuCtxSetCurrent(context))
        function = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(image)), b"add"))
        self.arrays = [check(driver.cuMemAlloc(4 * SIZE)) for _ in range(2)]
        graph = check(driver.cuGraphCreate(0))
        before: list[Any] = []
        for i in range(KERNELS):
            params = driver.CUDA_KERNEL_NODE_PARAMS()
            params.func = function
            params.gridDimX, params.gridDimY, params.gridDimZ = -(-SIZE // BLOCK), 1, 1
            params.blockDimX, params.blockDimY, params.blockDimZ = BLOCK, 1, 1
            values = [
                np.array([int(self.arrays[i % 2])], np.uint64),
                np.array([int(self.arrays[1 - i % 2])], np.uint64),
                np.array([1], np.float32),
                np.array([SIZE], np.int32),
            ]
            pointers = np.array([value.ctypes.data for value in values], np.uint64)
            params.kernelParams = pointers.ctypes.data
            node = check(driver.cuGraphAddKernelNode(graph, before, len(before), params))
            before = [node]
        self.exec = check(driver.cuGraphInstantiate(graph, 0))
        self.stream = check(driver.cuStreamCreate(1))
        self.start, self.stop = (check(driver.cuEventCreate(0)) for _ in range(2))

    def gpu_microseconds(self) -> float:
        """Time of one launch between two events, per kernel."""
        check(driver.cuEventRecord(self.start, self.stream))
        check(driver.cuGraphLaunch(self.exec, self.stream))
        check(driver.cuEventRecord(self.stop, self.stream))
        check(driver.cuStreamSynchronize(self.stream))
        return 1e3 * check(driver.cuEventElapsedTime(self.start, self.stop)) / KERNELS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    if jax.default_backend() != "gpu":
        sys.exit("no GPU here: this benchmark measures launches on one")

    image = harness.add_cubin()
    made = program(image)
    results = (jax.core.ShapedArray((SIZE,), np.float32),) * 2
    lone = jge.cuda_kernel(
        harness.ADD, "add", out_shape=lambda x, **_: x, grid=-(-SIZE // BLOCK), block=BLOCK
    )

    def one_call(x):
        return program_p.bind(x, program=made, results=results, uncaptured=True)[0]

    def many_calls(x):
        for _ in range(KERNELS):
            x = lone(x, a=1.0, n=SIZE)
        return x

    # Donated: addresses repeat. Kept: the result moves on every call.
    functions = {
        "ours, addresses repeat": jax.jit(one_call, donate_argnums=0),
        "ours, addresses move": jax.jit(one_call),
        "xla command buffers, addresses repeat": jax.jit(many_calls, donate_argnums=0),
        # What a jitted call costs whatever is in it.
        "a jitted call of one addition": jax.jit(lambda x: x + KERNELS, donate_argnums=0),
    }
    arrays = {name: jnp.zeros(SIZE) for name in functions}
    kept: list[Any] = []

    def measure(name, seconds):
        def one():
            if "move" in name:
                kept.append(arrays[name])
                del kept[:-3]
            elapsed, arrays[name] = seconds(functions[name], arrays[name])
            return 1e6 * elapsed

        return one

    ways = {}
    for name in functions:
        ways[f"{name}: host us per call"] = measure(name, harness.dispatch_seconds)
        ways[f"{name}: wall us per call"] = measure(name, harness.wall_seconds)
    jge.reset_stats()
    measured = harness.alternate(ways, rounds=options.rounds)
    stats = jge.stats()
    for name, array in arrays.items():
        assert float(array[0]) == KERNELS * 2 * (options.rounds + 5), name

    raw = RawGraph(image)
    raw_us = [raw.gpu_microseconds() for _ in range(options.rounds)]

    thresholds = {}
    f = functions["ours, addresses repeat"]
    for limit in (10, 20, 50, 100, 200, 500, 1000):
        with jge.options(max_ops_per_graph=limit):
            x = jnp.zeros(SIZE)
            host, wall = [], []
            for i in range(options.rounds + 5):
                elapsed, x = harness.dispatch_seconds(f, x)
                other, x = harness.wall_seconds(f, x)
                if i >= 5:
                    host.append(1e6 * elapsed)
                    wall.append(1e6 * other)
            thresholds[limit] = {
                "host us per call": harness.summary(host)["median"],
                "wall us per call": harness.summary(wall)["median"],
            }

    harness.write(
        options.out,
        {
            "benchmark": f"chain of {KERNELS} kernels in one jitted call",
            "environment": harness.environment(),
            "results": {name: harness.summary(values) for name, values in measured.items()},
            "raw graph, gpu us per kernel": harness.summary(raw_us),
            "nodes per graph": thresholds,
            "stats": stats,
        },
    )


if __name__ == "__main__":
    main()

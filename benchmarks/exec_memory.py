"""Device and host memory of executable graphs per node, by the driver's own figures.

    python benchmarks/exec_memory.py [--out result.json]

Instantiates chains of one kernel until they hold NODES nodes, launches each once, and reads
cuMemGetInfo and the process's resident memory before and after, and after they are destroyed. Each
length has a process of its own, since the driver keeps the memory of destroyed graphs. Needs a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil
from cuda.bindings import driver as cu

NODES = 65_536
CHAINS = (2, 20, 100, 1000, 10_000)
PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry add(.param .u64 x, .param .u64 y, .param .u64 out, .param .f32 a,
                   .param .u32 n) { ret; }
"""


def check(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the driver says {status.name}")
    return values[0] if len(values) == 1 else values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    found = {}
    for nodes in CHAINS:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            found[nodes] = process.submit(measure, nodes).result()
        figures = ", ".join(f"{what} {value:,.0f}" for what, value in found[nodes].items())
        print(f"{nodes:6} nodes a graph, {NODES // nodes:6} graphs: bytes a node: {figures}")
    if out is not None:
        out.write_text(json.dumps(found))


def measure(nodes: int) -> dict[str, float]:
    """Bytes per node of graphs of so many nodes, NODES nodes together."""
    check(cu.cuInit(0))
    device = check(cu.cuDeviceGet(0))
    check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(device))))
    function = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(PTX)), b"add"))
    stream = check(cu.cuStreamCreate(0))
    graph = chain(function, nodes)
    run(check(cu.cuGraphInstantiate(graph, 0)), stream)  # the driver's own pools exist then
    count = NODES // nodes
    before = state(stream)
    execs = [check(cu.cuGraphInstantiate(graph, 0)) for _ in range(count)]
    for exec_ in execs:
        run(exec_, stream)
    held = state(stream)
    for exec_ in execs:
        check(cu.cuGraphExecDestroy(exec_))
    after = state(stream)
    check(cu.cuGraphDestroy(graph))
    total = count * nodes
    return {
        "device": (held[0] - before[0]) / total,
        "device, kept by the driver when destroyed": (after[0] - before[0]) / total,
        "host": (held[1] - before[1]) / total,
    }


def chain(function: Any, nodes: int) -> Any:
    """A graph of kernels, each after the one before."""
    graph = check(cu.cuGraphCreate(0))
    parameters = cu.CUDA_KERNEL_NODE_PARAMS()
    parameters.func = function
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1
    parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = 32, 1, 1
    types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_float, ctypes.c_int)
    parameters.kernelParams = ((0, 0, 0, 1.0, 1), types)
    before: list[Any] = []
    for _ in range(nodes):
        node = check(cu.cuGraphAddKernelNode(graph, before, len(before), parameters))
        before = [node]
    return graph


def run(exec_: Any, stream: Any) -> None:
    check(cu.cuGraphLaunch(exec_, stream))


def state(stream: Any) -> tuple[int, int]:
    """Device memory in use and the process's resident memory, in bytes."""
    check(cu.cuStreamSynchronize(stream))
    free, total = check(cu.cuMemGetInfo())
    return total - free, psutil.Process().memory_info().rss


if __name__ == "__main__":
    main()

"""One uncut graph of the work, built and launched with the driver API alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda.bindings import driver
from ways import AbsentError, Way
from work import ADD, BLOCK, ROW, SIZE, SPIN, Batch, Chain, Independent, Loop, Work, cubin


def check(result: Any) -> Any:
    """The results of a driver function, after its status."""
    code, *values = result
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(str(code))
    return values[0] if len(values) == 1 else values


class RawGraph(Way):
    """Launches of one kernel ``(x, out, a, n)`` as a graph.

    Args:
        function: the kernel.
        launches: addresses of x and of the result, a and n, of each.
        grid: blocks of each, and threads of a block.
        chained: whether each waits for the one before.
        out: address and shape of the result.
    """

    def __init__(
        self,
        function: Any,
        launches: list[tuple[int, int, float, int]],
        grid: tuple[int, int],
        chained: bool,
        out: tuple[int, tuple[int, ...]],
    ) -> None:
        self._out = out
        graph = check(driver.cuGraphCreate(0))
        before: list[Any] = []
        for x, result, a, n in launches:
            params = driver.CUDA_KERNEL_NODE_PARAMS()
            params.func = function
            params.gridDimX, params.gridDimY, params.gridDimZ = grid[0], 1, 1
            params.blockDimX, params.blockDimY, params.blockDimZ = grid[1], 1, 1
            values = [
                np.array([x], np.uint64),
                np.array([result], np.uint64),
                np.array([a], np.float32),
                np.array([n], np.int32),
            ]
            pointers = np.array([value.ctypes.data for value in values], np.uint64)
            params.kernelParams = pointers.ctypes.data
            node = check(driver.cuGraphAddKernelNode(graph, before, len(before), params))
            before = [node] if chained else []
        self._exec = check(driver.cuGraphInstantiate(graph, 0))
        self._stream = check(driver.cuStreamCreate(1))

    def call(self) -> None:
        check(driver.cuGraphLaunch(self._exec, self._stream))
        self.calls += 1

    def wait(self) -> None:
        check(driver.cuStreamSynchronize(self._stream))

    def result(self) -> np.ndarray:
        address, shape = self._out
        got = np.empty(shape, np.float32)
        check(driver.cuMemcpyDtoH(got.ctypes.data, address, got.nbytes))
        return got


class RawGraphs:
    """A graph per work whose addresses repeat; a plain graph cannot follow moving ones."""

    def __init__(self, gpu: bool) -> None:
        if not gpu:
            raise AbsentError("needs a GPU")
        check(driver.cuInit(0))
        context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
        check(driver.cuCtxSetCurrent(context))
        self._add, self._spin = (
            check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(image)), name.encode()))
            for image, name in ((cubin(ADD, "add"), "add"), (cubin(SPIN, "spin"), "spin"))
        )

    def ways(self, work: Work) -> dict[str, Way]:
        match work:
            case Chain(kernels, moving=False):
                return {"raw graph": self._chain(kernels)}
            case Loop(iterations, body):
                return {"raw graph": self._chain(iterations * body)}
            case Independent(kernels, repetitions):
                return {"raw graph": self._independent(kernels, repetitions)}
            case Chain() | Batch():
                return {}

    def _chain(self, kernels: int) -> RawGraph:
        x = int(check(driver.cuMemAlloc(4 * SIZE)))
        check(driver.cuMemsetD32(x, 0, SIZE))
        # The graph's stream does not wait for the one of the memset.
        check(driver.cuCtxSynchronize())
        launches = [(x, x, 1.0, SIZE)] * kernels
        return RawGraph(self._add, launches, (-(-SIZE // BLOCK), BLOCK), True, (x, (SIZE,)))

    def _independent(self, kernels: int, repetitions: int) -> RawGraph:
        x = int(check(driver.cuMemAlloc(4 * ROW)))
        out = int(check(driver.cuMemAlloc(4 * ROW * kernels)))
        values = np.arange(ROW, dtype=np.float32)
        check(driver.cuMemcpyHtoD(x, values.ctypes.data, values.nbytes))
        launches = [(x, out + 4 * ROW * i, float(i), repetitions) for i in range(kernels)]
        return RawGraph(self._spin, launches, (1, ROW), False, (out, (kernels, ROW)))

"""CuPy: launches of a RawKernel, captured from a stream as one graph."""

from __future__ import annotations

import cupy
import numpy as np
from ways import AbsentError, Way
from work import ADD, BLOCK, SIZE, Chain, Loop, Work


class CupyGraph(Way):
    """A chain of additions in place."""

    def __init__(self, kernels: int) -> None:
        self._x = cupy.zeros(SIZE, cupy.float32)
        cupy.cuda.get_current_stream().synchronize()
        add = cupy.RawKernel(ADD, "add")
        add.compile()  # nothing may be loaded during a capture
        self._stream = cupy.cuda.Stream(non_blocking=True)
        with self._stream:
            self._stream.begin_capture()
            for _ in range(kernels):
                arguments = (self._x, self._x, np.float32(1), np.int32(SIZE))
                add((-(-SIZE // BLOCK),), (BLOCK,), arguments)
            self._graph = self._stream.end_capture()

    def call(self) -> None:
        self._graph.launch(self._stream)
        self.calls += 1

    def wait(self) -> None:
        self._stream.synchronize()

    def result(self) -> np.ndarray:
        return cupy.asnumpy(self._x)


class CupyGraphs:
    """A graph per chain whose addresses repeat."""

    def __init__(self, gpu: bool) -> None:
        if not gpu:
            raise AbsentError("needs a GPU")

    def ways(self, work: Work) -> dict[str, Way]:
        match work:
            case Chain(kernels, moving=False):
                return {"CuPy graph": CupyGraph(kernels)}
            case Loop(iterations, body):
                return {"CuPy graph": CupyGraph(iterations * body)}
            case _:
                return {}

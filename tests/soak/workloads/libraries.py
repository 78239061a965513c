"""libraries.py: other libraries on the same GPU, on streams of their own and capturing."""

from __future__ import annotations

import random
import threading

import machine
import numpy as np
from kernels import COMBINE, SCALE
from launches import SIZE, Buffers, random_launch
from machine import DEVICE, cupy, torch

import jax_graphenc as jge
from workloads import Checks

# CuPy and torch capture in one thread at a time here: what they share among captures is theirs.
_capturing = threading.Lock()


def cupy_beside_an_encoder(rng: random.Random) -> Checks:
    """CuPy works on its stream before and after an encoder does."""
    buffers = Buffers(rng)
    stream = rng.choice(machine.CUPY_STREAMS)
    with jge.Encoder(DEVICE) as encoder:
        for _ in range(rng.randint(1, 5)):
            with stream:
                buffers.arrays[0] *= np.uint32(3)
            buffers.want[0] *= np.uint32(3)
            stream.synchronize()
            for _ in range(5):
                buffers.append(encoder, random_launch(rng))
            encoder.synchronize()
    yield from buffers.checks()


def cupy_in_a_capture(rng: random.Random) -> Checks:
    """CuPy's work is a node of an encoder's batch."""
    buffers = Buffers(rng, 2)
    x, y = buffers.arrays
    cupy.multiply(x, np.uint32(3), out=y)  # compiled before the capture
    cupy.cuda.get_current_stream().synchronize()
    with jge.Encoder(DEVICE) as encoder:
        for _ in range(3):
            with (
                encoder.capture(reads=[x], writes=[y]) as stream,
                cupy.cuda.ExternalStream(stream),
            ):
                cupy.multiply(x, np.uint32(3), out=y)
            encoder.append(SCALE.cuda, y, a=2, n=SIZE)
            encoder.append(COMBINE.cuda, y, x, a=1, n=SIZE)
            buffers.want[1] = SCALE.numpy(buffers.want[0] * np.uint32(3), 2)
            buffers.want[0] = COMBINE.numpy(buffers.want[1], 1)
        encoder.synchronize()
    yield from buffers.checks()


def cupy_graph(rng: random.Random) -> Checks:
    """CuPy captures and replays a graph of its own."""
    stream = machine.CUPY_CAPTURED_STREAM
    start = np.arange(SIZE, dtype=np.uint32) + np.uint32(rng.getrandbits(16))
    with _capturing, stream:
        x = cupy.asarray(start)
        cupy.multiply(x, np.uint32(1), out=x)
        stream.synchronize()
        stream.begin_capture()
        cupy.multiply(x, np.uint32(3), out=x)
        graph = stream.end_capture()
        for _ in range(3):
            graph.launch(stream)
        got = cupy.asnumpy(x)
    yield got, start * np.uint32(27)


def torch_on_a_stream(rng: random.Random) -> Checks:
    """Torch works on a stream of its own."""
    start = np.arange(SIZE, dtype=np.int64) + rng.getrandbits(16)
    with torch.cuda.stream(torch.cuda.Stream()):
        x = torch.from_numpy(start).to("cuda")
        for _ in range(10):
            x = x * 3 + 1
        got = x.cpu().numpy()
    want = start
    for _ in range(10):
        want = want * 3 + 1
    yield got, want


def _torch_graph(start: np.ndarray, mode: str) -> np.ndarray:
    """Torch captures ``x *= 3`` and replays it three times."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.from_numpy(start).to("cuda")
        x.mul_(1)
        stream.synchronize()
        # Not torch.cuda.graph(), which waits for the device: XLA may be capturing there.
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode=mode)
        try:
            for _ in range(20):  # long enough to meet others
                x.mul_(1)
            x.mul_(3)
        finally:
            graph.capture_end()
        for _ in range(3):
            graph.replay()
        return x.cpu().numpy()


def torch_graph(rng: random.Random) -> Checks:
    """Torch captures in the mode in which other threads may do what they like."""
    start = np.arange(SIZE, dtype=np.int64) + rng.getrandbits(16)
    with _capturing:
        got = _torch_graph(start, "thread_local")
    yield got, start * 27


def torch_graph_in_its_default_mode(rng: random.Random) -> Checks:
    """Torch captures while encoders work; nothing that they do may end its capture.

    The mode, ``"global"``, forbids other threads to allocate and to wait; JAX and CuPy do both, so
    this is for a time when they rest. What encoders need is made before.
    """
    start = np.arange(SIZE, dtype=np.int64) + rng.getrandbits(16)
    all_buffers = [Buffers(rng) for _ in range(4)]
    launches = [random_launch(rng) for _ in range(5)]
    stop = threading.Event()
    ready = threading.Barrier(len(all_buffers) + 1)
    errors: list[BaseException] = []

    def encode(buffers: Buffers) -> None:
        try:
            with jge.Encoder(DEVICE) as encoder:
                for _ in range(5):
                    _batch(encoder, buffers)
                ready.wait(60)
                while not stop.is_set():
                    _batch(encoder, buffers)
        except BaseException as error:
            errors.append(error)

    def _batch(encoder: jge.Encoder, buffers: Buffers) -> None:
        for launch in launches:
            buffers.append(encoder, launch)
        encoder.add_completed_handler(lambda error: None)
        encoder.synchronize()

    threads = [threading.Thread(target=encode, args=(buffers,)) for buffers in all_buffers]
    for thread in threads:
        thread.start()
    try:
        ready.wait(60)
        for _ in range(20):
            yield _torch_graph(start, "global"), start * 27
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    yield [repr(error) for error in errors], []
    for buffers in all_buffers:
        yield from buffers.checks()


WORKLOADS = {}
# These run alone, between rounds.
ALONE = []
if cupy is not None:
    WORKLOADS |= {cupy_beside_an_encoder: 2, cupy_in_a_capture: 2, cupy_graph: 1}
if torch is not None:
    WORKLOADS |= {torch_on_a_stream: 1, torch_graph: 1}
if cupy is not None and torch is not None:
    ALONE.append(torch_graph_in_its_default_mode)

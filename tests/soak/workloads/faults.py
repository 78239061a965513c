"""faults.py: what users do wrong. Each is told so, and what comes after works."""

from __future__ import annotations

import random
import threading
import traceback
from collections.abc import Callable
from typing import Any

import jax
import machine
import numpy as np
from kernels import COMBINE, SCALE, TRAP_AT
from launches import SIZE, Buffers, random_launch
from machine import DEVICE

import jax_graphenc as jge
from workloads import Checks


class ExpectedError(Exception):
    """Raised on purpose; the soak does not count it as a failure."""


def refused(expected: str, function: Callable[..., Any], *args: Any) -> tuple[str, str]:
    """What is raised and what should be, the name of an error; else, all that is raised."""
    try:
        function(*args)
    except Exception as error:
        fine = type(error).__name__ in expected.split(" or ")
        return (expected if fine else traceback.format_exc()), expected
    return "nothing was raised", expected


_x = np.arange(SIZE, dtype=np.uint32)
_failing_region = jax.jit(
    jge.graph(lambda x: TRAP_AT(COMBINE.cuda(x, a=1, n=SIZE), bad=50, n=SIZE))
)
_failing_kernel = jax.jit(lambda x: TRAP_AT(x, bad=50, n=SIZE))


def failing_kernel_in_jax(rng: random.Random) -> Checks:
    """A kernel traps inside XLA's program; then the same one does not."""
    f, offset = rng.choice(((_failing_region, 1), (_failing_kernel, 0)))
    # JAX raises a ValueError for what fails after the call has returned.
    yield refused("JaxRuntimeError or ValueError", lambda: jax.block_until_ready(f(_x)))
    fine = _x + np.uint32(1000)
    yield f(fine), fine + np.uint32(offset)


def failing_kernel_in_an_encoder(rng: random.Random) -> Checks:
    """A kernel traps; the encoder works on."""
    buffers = Buffers(rng)
    x, out = _x.copy(), np.zeros_like(_x)
    told = threading.Event()
    with jge.Encoder(DEVICE) as encoder:
        encoder.append(TRAP_AT, x, out, bad=50, n=SIZE)
        encoder.add_completed_handler(lambda error: told.set())

        def finish() -> None:
            if rng.random() < 0.5:
                encoder.commit()  # this fails already in debug mode
            encoder.synchronize()

        yield refused("RuntimeError", finish)
        yield told.wait(60), True
        for _ in range(3):
            buffers.append(encoder, random_launch(rng))
        encoder.synchronize()
        yield from buffers.checks()


def wrong_calls(rng: random.Random) -> Checks:
    """Calls that are refused, in a batch that runs nevertheless."""
    buffers = Buffers(rng)
    array = buffers.arrays[0]
    wrong = [
        (TypeError, lambda e: e.append(COMBINE.cuda, array, a=1, n=SIZE)),
        (TypeError, lambda e: e.append(COMBINE.cuda, array, "text", a=1, n=SIZE)),
        (TypeError, lambda e: e.append(COMBINE.cuda, array, array, b=1)),
        (TypeError, lambda e: e.append(SCALE.cuda, jax.device_put(_x, DEVICE), a=1, n=SIZE)),
        (TypeError, lambda e: e.append("kernel", array)),
        (ValueError, lambda e: e.append(SCALE.cuda, array, a=1, n=SIZE, block=5000)),
        (TypeError, lambda e: e.add_completed_handler(3)),
        (TypeError, lambda e: e.capture(writes=[7]).__enter__()),
        (TypeError, lambda e: COMBINE.cuda(_x)),
        (TypeError, lambda e: COMBINE.cuda(_x.astype(np.float32), a=1, n=SIZE)),
        (ValueError, lambda e: jge.options(graph_cache_size=-1)),
    ]
    with jge.Encoder(DEVICE) as encoder:
        for _ in range(5):
            expected, call = rng.choice(wrong)
            buffers.append(encoder, random_launch(rng))
            yield refused(expected.__name__, call, encoder)
        encoder.synchronize()
        yield from buffers.checks()
    yield refused("ValueError", encoder.commit)


def error_in_a_handler(rng: random.Random) -> Checks:
    """A completion handler raises; the next one is called."""

    def handler(error: str | None) -> None:
        raise ExpectedError

    buffers = Buffers(rng)
    told: list[object] = []
    with jge.Encoder(DEVICE) as encoder:
        buffers.append(encoder, random_launch(rng))
        encoder.add_completed_handler(handler)
        encoder.add_completed_handler(told.append)
        encoder.synchronize()
        yield told, [None]
        yield from buffers.checks()


def error_in_a_concurrent_region(rng: random.Random) -> Checks:
    """An exception leaves a concurrent region; what was appended before and in it runs."""
    buffers = Buffers(rng)
    with jge.Encoder(DEVICE) as encoder:
        buffers.append(encoder, random_launch(rng))

        def interrupted() -> None:
            with encoder.concurrent():
                buffers.append(encoder, random_launch(rng))
                raise ExpectedError

        yield refused("ExpectedError", interrupted)
        buffers.append(encoder, random_launch(rng))
        encoder.synchronize()
        yield from buffers.checks()


def error_in_an_encoder(rng: random.Random) -> Checks:
    """An exception leaves the encoder's ``with``: what was not committed is dropped."""
    buffers = Buffers(rng)

    def interrupted() -> None:
        with jge.Encoder(DEVICE) as encoder:
            buffers.append(encoder, random_launch(rng))
            encoder.commit()
            encoder.append(COMBINE.cuda, buffers.arrays[0], buffers.arrays[1], a=0, n=SIZE)
            raise ExpectedError

    yield refused("ExpectedError", interrupted)
    yield from buffers.checks()


def source_that_does_not_compile(rng: random.Random) -> Checks:
    """A compiler refuses a source."""
    source = 'extern "C" __global__ void wrong(const unsigned* x, unsigned* out) { out[0] = y[0]; }'
    wrong = jge.cuda_kernel(source, "wrong", grid=1, block=1, out_shape=lambda x: x)
    yield refused("KernelCompileError", wrong, _x)


WORKLOADS = {source_that_does_not_compile: 0.2}
if machine.LIBRARIES:
    WORKLOADS |= {
        wrong_calls: 2,
        error_in_a_handler: 1,
        error_in_a_concurrent_region: 1,
        error_in_an_encoder: 1,
    }
if machine.ON_CPU:
    WORKLOADS |= {failing_kernel_in_jax: 1, failing_kernel_in_an_encoder: 1}

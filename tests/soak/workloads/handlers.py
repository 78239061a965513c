"""handlers.py: what encoders call when work is done."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from typing import Any

import machine
import numpy as np
from kernels import COMBINE
from launches import SIZE, Buffers, random_launch, some_encoder
from machine import DEVICE

import jax_graphenc as jge
from workloads import Checks, Workload


class _Kept:
    """What a weak reference can watch."""


def handlers(rng: random.Random) -> Checks:
    """Handlers are called once and in order; what is kept goes when the work is done."""
    buffers = Buffers(rng)
    told: list[int] = []
    kept = [_Kept() for _ in range(5)]
    gone = [weakref.ref(k) for k in kept]
    with some_encoder(rng) as encoder:
        for i, k in enumerate(kept):
            buffers.append(encoder, random_launch(rng))
            encoder.add_completed_handler(lambda error, i=i: told.append(error or i))
            encoder.keep(k)
            if rng.random() < 0.5:
                encoder.commit()
        del kept, k
        encoder.synchronize()
        yield told, list(range(5))
        yield [ref() for ref in gone], [None] * 5
        yield from buffers.checks()


def handler_that_commits(rng: random.Random) -> Checks:
    """A completion handler gives another encoder work."""
    buffers, others = Buffers(rng), Buffers(rng)
    first, second = (jge.Encoder(rng.choice(machine.DEVICES)) for _ in range(2))
    launch = random_launch(rng)

    def handler(error: str | None) -> None:
        others.append(second, launch)
        second.commit()

    buffers.append(first, random_launch(rng))
    first.add_completed_handler(handler)
    first.synchronize()
    second.synchronize()
    yield from buffers.checks()
    yield from others.checks()
    first.close()
    second.close()


def encoder_that_a_handler_closes(rng: random.Random) -> Checks:
    """A completion handler closes its encoder, or another one that has work."""
    buffers, others = Buffers(rng), Buffers(rng)
    first, second = (jge.Encoder(rng.choice(machine.DEVICES)) for _ in range(2))
    done = threading.Event()
    buffers.append(first, random_launch(rng))
    others.append(second, random_launch(rng))
    second.commit()
    first.add_completed_handler(lambda error: (second.close(), first.close(), done.set()))
    first.commit()
    yield done.wait(60), True
    yield from buffers.checks()
    yield from others.checks()


def handler_that_calls_jax(rng: random.Random) -> Checks:
    """A completion handler calls a kernel in JAX."""
    buffers = Buffers(rng)
    x = np.full(SIZE, rng.getrandbits(32), np.uint32)
    told: list[Any] = []
    with jge.Encoder(DEVICE) as encoder:
        buffers.append(encoder, random_launch(rng))
        encoder.add_completed_handler(
            lambda error: told.append(np.asarray(COMBINE.cuda(x, a=3, n=SIZE)))
        )
        encoder.synchronize()
    [got] = told
    yield got, COMBINE.numpy(x, 3)
    yield from buffers.checks()


def waiting_for_the_end(rng: random.Random) -> Checks:
    """A handler is told that work is done, without ``synchronize``."""
    buffers = Buffers(rng)
    done = threading.Event()
    encoder = jge.Encoder(DEVICE)
    buffers.append(encoder, random_launch(rng))
    encoder.add_completed_handler(lambda error: done.set())
    encoder.commit()
    if rng.random() < 0.5:
        time.sleep(0.01)
    yield done.wait(60), True
    yield from buffers.checks()
    del encoder
    gc.collect()


WORKLOADS: dict[Workload, float] = {}
if machine.LIBRARIES:
    WORKLOADS |= {
        handlers: 3,
        handler_that_commits: 2,
        encoder_that_a_handler_closes: 1,
        handler_that_calls_jax: 1,
        waiting_for_the_end: 2,
    }

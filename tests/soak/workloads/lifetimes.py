"""lifetimes.py: encoders, captures and kept objects that are dropped at any time."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import machine
from kernels import COMBINE
from launches import SIZE, Buffers, enqueue, random_launch, run_threads
from machine import DEVICE

import jax_graphenc as jge
from workloads import Checks, Workload


def dropped_encoder(rng: random.Random) -> Checks:
    """An encoder goes without ``close``: what is committed is done, the rest is not."""
    buffers = Buffers(rng)
    encoder = jge.Encoder(DEVICE)
    for _ in range(5):
        buffers.append(encoder, random_launch(rng))
    encoder.commit()
    encoder.append(COMBINE.cuda, buffers.arrays[0], buffers.arrays[1], a=0, n=SIZE)
    del encoder  # it waits
    yield from buffers.checks()


def abandoned_capture(rng: random.Random) -> Checks:
    """A capture is begun and never ended; the encoder goes with it."""
    buffers = Buffers(rng)
    encoder = jge.Encoder(DEVICE)
    buffers.append(encoder, random_launch(rng))
    encoder.commit()
    capture = encoder.capture(writes=buffers.arrays)
    stream = capture.__enter__()
    launch = random_launch(rng)
    enqueue(launch, launch.of(buffers.arrays), stream, encoder.device)
    if rng.random() < 0.5:
        encoder.close()
    del capture, encoder
    yield from buffers.checks()


def capture_that_another_thread_drops(rng: random.Random) -> Checks:
    """A capture is begun on a thread and collected on another one."""
    buffers = Buffers(rng)
    held: list[Any] = []

    def begin() -> None:
        encoder = jge.Encoder(DEVICE)
        buffers.append(encoder, random_launch(rng))
        encoder.commit()
        capture = encoder.capture(writes=buffers.arrays)
        held.extend((encoder, capture, capture.__enter__()))

    run_threads(begin, [()])
    held.clear()
    yield from buffers.checks()


def encoder_in_a_cycle(rng: random.Random) -> Checks:
    """The garbage collector finds an encoder, on whatever thread that is."""
    buffers = Buffers(rng)
    encoder = jge.Encoder(DEVICE)
    done = threading.Event()
    for _ in range(5):
        buffers.append(encoder, random_launch(rng))
    encoder.add_completed_handler(lambda error: (gc.collect(), done.set()))
    encoder.commit()
    cycle: list[Any] = [encoder]
    cycle.append(cycle)
    del encoder, cycle
    gc.collect()
    yield done.wait(60), True
    yield from buffers.checks()


class _Encoding:
    """Commits an encoder when it goes."""

    def __init__(self, encoder: jge.Encoder, gone: threading.Event) -> None:
        self._encoder, self._gone = encoder, gone

    def __del__(self) -> None:
        self._encoder.commit()
        self._gone.set()


def kept_object_that_encodes(rng: random.Random) -> Checks:
    """What an encoder keeps uses the encoder as it goes."""
    buffers = Buffers(rng)
    gone = threading.Event()
    with jge.Encoder(DEVICE) as encoder:
        for _ in range(3):
            buffers.append(encoder, random_launch(rng))
            encoder.keep(_Encoding(encoder, gone))
        encoder.synchronize()
        yield gone.wait(60), True
        yield from buffers.checks()


WORKLOADS: dict[Workload, float] = {}
if machine.LIBRARIES:
    WORKLOADS |= {
        dropped_encoder: 2,
        abandoned_capture: 2,
        capture_that_another_thread_drops: 1,
        encoder_in_a_cycle: 1,
        kept_object_that_encodes: 1,
    }

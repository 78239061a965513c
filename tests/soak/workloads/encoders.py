"""encoders.py: kernels outside XLA, on arrays in place."""

from __future__ import annotations

import contextlib
import random

import jax
import machine
import numpy as np
from kernels import ACCUMULATE, SCALE
from launches import (
    BUFFERS,
    SIZE,
    Buffers,
    Launch,
    enqueue,
    random_launch,
    run_threads,
    some_encoder,
)
from machine import DEVICE

import jax_graphenc as jge
from workloads import Checks, Workload


def _append(encoder: jge.Encoder, buffers: Buffers, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 10)):
        buffers.append(encoder, random_launch(rng))


def _concurrent(encoder: jge.Encoder, buffers: Buffers, rng: random.Random) -> None:
    """Launches that commute."""
    launch = random_launch(rng)
    with encoder.concurrent():
        for which in range(BUFFERS):
            whole = ((which, 0, SIZE),)
            buffers.append(encoder, Launch(SCALE, whole, launch.a))


def _capture(encoder: jge.Encoder, buffers: Buffers, rng: random.Random) -> None:
    launch = random_launch(rng)
    arrays = launch.of(buffers.arrays)
    with encoder.capture(reads=arrays[:-1], writes=arrays[-1:]) as stream:
        enqueue(launch, arrays, stream, encoder.device)
    launch.compute(buffers.want)


def _discarded_capture(encoder: jge.Encoder, buffers: Buffers, rng: random.Random) -> None:
    launch = random_launch(rng)
    arrays = launch.of(buffers.arrays)
    with contextlib.suppress(KeyError), encoder.capture(writes=arrays) as stream:
        enqueue(launch, arrays, stream, encoder.device)
        raise KeyError


ACTIONS = (
    *(_append, _append, _append, _concurrent, _capture, _discarded_capture),
    lambda encoder, buffers, rng: encoder.commit(),
    lambda encoder, buffers, rng: encoder.synchronize(),
)


def random_batches(rng: random.Random) -> Checks:
    """Random work on overlapping slices, some rounds of the same, so that graphs are met again."""
    buffers = Buffers(rng)
    seed = rng.getrandbits(64)
    with some_encoder(rng) as encoder:
        for _ in range(rng.randint(1, 4)):
            again = random.Random(seed)
            for _ in range(again.randint(1, 12)):
                again.choice(ACTIONS)(encoder, buffers, again)
        encoder.synchronize()
        yield from buffers.checks()


def one_encoder_for_several_threads(rng: random.Random) -> Checks:
    """Each thread works on its own buffers."""
    all_buffers = [Buffers(rng) for _ in range(4)]
    seeds = [rng.getrandbits(64) for _ in all_buffers]
    with jge.Encoder(DEVICE) as encoder:

        def work(buffers: Buffers, own: random.Random) -> None:
            for _ in range(10):
                buffers.append(encoder, random_launch(own))
                if own.random() < 0.3:
                    encoder.commit()
                if own.random() < 0.1:
                    encoder.synchronize()

        run_threads(work, [(b, random.Random(s)) for b, s in zip(all_buffers, seeds, strict=True)])
        encoder.synchronize()
        for buffers in all_buffers:
            yield from buffers.checks()


def thread_that_ends(rng: random.Random) -> Checks:
    """A thread ends while what it appended and committed waits; another one waits for it."""
    buffers = Buffers(rng)
    encoder = jge.Encoder(DEVICE)

    def work() -> None:
        for _ in range(5):
            buffers.append(encoder, random_launch(rng))
        if rng.random() < 0.5:
            encoder.commit()

    run_threads(work, [()])
    encoder.synchronize()
    encoder.close()
    yield from buffers.checks()


def many_encoders(rng: random.Random) -> Checks:
    """More streams than devices usually have, finished in another order."""
    all_buffers = [Buffers(rng) for _ in range(40)]
    encoders = [jge.Encoder(rng.choice(machine.DEVICES)) for _ in all_buffers]
    pairs = list(zip(encoders, all_buffers, strict=True))
    for encoder, buffers in pairs:
        buffers.append(encoder, random_launch(rng))
        encoder.commit()
    rng.shuffle(pairs)
    for encoder, buffers in pairs:
        encoder.synchronize()
        yield from buffers.checks()
        encoder.close()


def inputs_of_jax(rng: random.Random) -> Checks:
    """JAX's arrays as inputs, deleted before the work is done."""
    buffers = Buffers(rng, 1)
    number = np.full(SIZE, rng.getrandbits(32), np.uint32)
    with some_encoder(rng) as encoder:
        x = jax.device_put(number, encoder.device) + np.uint32(1)
        for _ in range(3):
            encoder.append(ACCUMULATE.cuda, x, buffers.arrays[0], n=SIZE)
            buffers.want[0] += np.asarray(x)
        x.delete()
        if rng.random() < 0.5:
            encoder.commit()
        encoder.synchronize()
        yield from buffers.checks()


WORKLOADS: dict[Workload, float] = {}
if machine.LIBRARIES:
    WORKLOADS |= {
        random_batches: 10,
        one_encoder_for_several_threads: 2,
        thread_that_ends: 2,
        many_encoders: 0.3,
        inputs_of_jax: 3,
    }

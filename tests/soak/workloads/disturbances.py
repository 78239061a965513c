"""disturbances.py: what changes under the other threads' feet: options, caches, counters."""

from __future__ import annotations

import gc
import random
import time

import jax
import machine
import programs

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.base.options import current
from workloads import Checks

# What each may be, besides its default.
READ_AT_EXECUTION = {
    "max_ops_per_graph": (None, 1, 3, 20, 500),
    "max_mb_per_graph": (None, 1, 100),
    "use_graphs": (True, False),
    "graph_cache_size": (1 << 18, 1, 30, 200),
    "graph_after": (1, 0, 3),
    "time_driver_calls": (True, False),
}
# A change of these makes JAX compile everything again.
READ_WHEN_TRACED = {
    "debug": (True, False),
    "time_kernels": (True, False),
    "use_command_buffers": (True, False),
    "scratch_reuse": ("path", "order", "never"),
    "max_unrolled_nodes": (1, 10, 4096),
    "max_batch_nodes": (1, 256),
}


_DEFAULTS = {name: getattr(current(), name) for name in (*READ_AT_EXECUTION, *READ_WHEN_TRACED)}


def restore_defaults() -> None:
    """Puts back what the workloads below have changed."""
    jge.options(**_DEFAULTS)
    _core.host_set_order_seed(None)


def changed_options() -> str:
    """Those in force that are not the defaults."""
    now = {name: getattr(current(), name) for name in _DEFAULTS}
    changed = [f"{name}={value!r}" for name, value in now.items() if value != _DEFAULTS[name]]
    return ", ".join(changed) or "defaults"


def options_read_at_execution(rng: random.Random) -> Checks:
    """Some options for some milliseconds, or until the next change."""
    some = rng.sample(sorted(READ_AT_EXECUTION), rng.randint(1, 3))
    changes = {name: rng.choice(READ_AT_EXECUTION[name]) for name in some}
    if rng.random() < 0.5:
        jge.options(**changes)
    else:
        with jge.options(**changes):
            time.sleep(rng.random() / 50)
    yield from ()


def options_read_when_traced(rng: random.Random) -> Checks:
    """An option that functions are compiled for."""
    name = rng.choice(sorted(READ_WHEN_TRACED))
    with jge.options(**{name: rng.choice(READ_WHEN_TRACED[name])}):
        time.sleep(rng.random())
    yield from ()


def cleared_caches(rng: random.Random) -> Checks:
    """Some of the caches are emptied."""
    for clear in (
        jge.clear_caches,
        jax.clear_caches,
        gc.collect,
        rng.choice(programs.SHARED).cache_clear,
    ):
        if rng.random() < 0.3:
            clear()
    yield from ()


def cleared_disk_cache(rng: random.Random) -> Checks:
    """The folder of compiled kernels is emptied: all is compiled again."""
    jge.clear_caches(disk=True)
    yield from ()


def counters(rng: random.Random) -> Checks:
    """Counters are read and set to zero."""
    str(jge.stats())
    str(jge.kernel_times())
    jge.driver_calls()
    if rng.random() < 0.2:
        jge.reset_stats()
    yield from ()


def order_of_nodes(rng: random.Random) -> Checks:
    """The software driver takes ready nodes in another order."""
    _core.host_set_order_seed(rng.choice((None, rng.getrandbits(32))))
    yield from ()


WORKLOADS = {
    options_read_at_execution: 3,
    options_read_when_traced: 0.1,
    cleared_caches: 0.3,
    cleared_disk_cache: 0.02,
    counters: 1,
}
if machine.ON_CPU:
    WORKLOADS[order_of_nodes] = 1

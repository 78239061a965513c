"""Counters of what the package has done in this process."""

from __future__ import annotations

from jax_graphenc import _core
from jax_graphenc.compiler import compile_counts, reset_counts


def stats() -> dict[str, int]:
    """What has been done since the process began or ``reset_stats`` was called.

    Returns:
        Counts by name. ``programs`` decoded and the ``scratch_bytes`` of memory that their inner
        values take, ``images_loaded``, ``encoders`` made; ``commits`` of batches, the ``nodes`` in
        them (kernels, memsets, copies, captures, and the joins that end concurrent regions) and the
        ``bytes`` of memory that they touch, each byte once per batch by hand and once per run of a
        program; of these nodes, ``direct_launches`` straight onto a stream and ``captured_nodes``
        added to a graph that XLA captures, which are counted then and not when XLA launches it;
        ``graph_launches`` of executable graphs; of these graphs: ``instantiations``,
        ``nodes_patched``, ``exec_hits`` and ``exec_misses`` in their cache, ``exec_evictions``, and
        ``fallbacks_*`` by reason; of the compilers: ``compiled`` sources, ``disk_hits`` and
        ``memory_hits``.
    """
    return {**_core.stats(), **compile_counts()}


def driver_calls() -> dict[str, tuple[int, float]]:
    """Time spent in the CUDA driver's functions, if ``options(time_driver_calls=True)`` was set.

    Returns:
        Calls, and seconds in all, by function; the most expensive first.
    """
    return {name: (calls, 1e-9 * spent) for name, calls, spent in _core.call_times()}


def reset_stats() -> None:
    """Sets all counters and times to zero."""
    _core.reset_stats()
    _core.reset_call_times()
    reset_counts()

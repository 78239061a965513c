"""Counters of what the package has done in this process."""

from __future__ import annotations

from jax_graphenc import _core
from jax_graphenc.compiler import compile_counts, reset_counts


def stats() -> dict[str, int]:
    """What has been done since the process began or ``reset_stats`` was called.

    Returns:
        Counts by name: ``programs`` decoded, ``images_loaded``, ``encoders`` made, ``nodes`` handed
        to a stream or a capture, ``commits``, ``direct_launches`` of kernels onto a stream,
        ``captured_nodes`` added to a graph that XLA captures; and of the compilers: ``compiled``
        sources, ``disk_hits`` and ``memory_hits``.
    """
    native = _core.stats()
    nodes = native["direct_launches"] + native["captured_nodes"]
    return {"nodes": nodes, **native, **compile_counts()}


def reset_stats() -> None:
    """Sets all counters to zero."""
    _core.reset_stats()
    reset_counts()

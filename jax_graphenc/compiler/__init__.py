"""CUDA C++ source to kernel images, for GPUs and for the CPU, with a cache on disk."""

from __future__ import annotations

from jax_graphenc.compiler.cache import clear as clear_disk
from jax_graphenc.compiler.compile import (
    CPU_TARGETS,
    clear_memory,
    compile_counts,
    compile_source,
    reset_counts,
    source_digest,
)
from jax_graphenc.compiler.diagnostics import UnknownKernelError
from jax_graphenc.compiler.files import FollowedSource, Version
from jax_graphenc.compiler.source import Entry, Image, Source

__all__ = [
    "CPU_TARGETS",
    "Entry",
    "FollowedSource",
    "Image",
    "Source",
    "UnknownKernelError",
    "Version",
    "clear_disk",
    "clear_memory",
    "compile_counts",
    "compile_source",
    "reset_counts",
    "source_digest",
]

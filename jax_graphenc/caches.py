"""Forgetting compiled kernels."""

from __future__ import annotations

from jax_graphenc.base.options import current as current_options
from jax_graphenc.compiler.cache import clear as clear_disk
from jax_graphenc.compiler.compile import clear_memory
from jax_graphenc.encoder.encoder import forget_programs
from jax_graphenc.kernels.autotune import forget_choices


def clear_caches(disk: bool = False) -> None:
    """Forgets this process's compiled kernels and the choices of ``autotune``.

    Traced functions keep their kernels until ``jax.clear_caches()``.

    Args:
        disk: whether to empty the folder of compiled kernels and choices
            (``options(cache_dir=)``) as well; NVRTC's unpacked headers stay.
    """
    clear_memory()
    forget_programs()
    forget_choices()
    folder = current_options().cache_dir
    if disk and folder is not None:
        clear_disk(folder)

"""CUDA's own headers: of the wheels, of a toolkit, or those that NVRTC brings along."""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from pathlib import Path

from jax_graphenc.compiler import cache
from jax_graphenc.compiler.nvrtc_library import load, version


@functools.cache
def toolkit_headers() -> tuple[Path, ...]:
    """Finds the folders of CUDA's own headers (cuda_fp16.h and cccl), or returns ().

    Wheels come first: a toolkit on the machine may be of another version than NVRTC's.
    """
    roots = _wheels()
    places = [place for root in roots for place in (root / "cu13", root / "cuda_runtime")]
    for place in (*(place / "include" for place in places), *_pathfinder_headers("cudart")):
        if (place / "cuda_fp16.h").is_file():
            cccl = (place / "cccl", *(root / "cuda_cccl" / "include" for root in roots))
            return (place, *(folder for folder in cccl if folder.is_dir()))
    return ()


def _wheels() -> list[Path]:
    namespace = importlib.util.find_spec("nvidia")
    return [Path(root) for root in (namespace and namespace.submodule_search_locations) or ()]


def _pathfinder_headers(library: str) -> list[Path]:
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return []
    found = find_nvidia_header_directory(library)
    return [Path(found)] if found else []


def more_headers(cache_dir: Path | None) -> tuple[Path, ...]:
    """Finds further headers of CUDA and CCCL, for a source that needs what is not there, or ().

    NVRTC 13.3 and later bring their own along, which fit best; else those of a toolkit.
    """
    if bundled := _bundled_headers(cache_dir):
        return bundled
    known = toolkit_headers()
    return (
        tuple(folder for folder in (*known, *_pathfinder_headers("cccl")) if folder.is_dir())
        if known
        else ()
    )


@functools.cache
def _bundled_headers(cache_dir: Path | None) -> tuple[Path, ...]:
    """Unpacks the headers that NVRTC brings along (20 MB), once per version."""
    nvrtc = load()
    install = getattr(nvrtc, "nvrtcInstallBundledHeaders", None)
    if install is None:
        return ()
    major, minor = version()
    folder = None if cache_dir is None else cache_dir / f"nvrtc-{major}.{minor}-headers"
    if folder is None or not (cache.is_private(folder.parent) and cache.is_private(folder)):
        folder = Path(_temporary_folder().name)
    try:
        skip = nvrtc.NVRTC_INSTALL_HEADERS_SKIP_IF_EXISTS
        (code, *_) = install(str(folder).encode(), int(skip))
    except Exception:  # cuda-python has errors of several kinds for a function that is not there.
        return ()
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return ()
    return (folder, folder / "cccl")


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is gone when the process is."""
    return tempfile.TemporaryDirectory(prefix="jax_graphenc_")

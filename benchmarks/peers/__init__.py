"""The peers: each does a work in one or more ways, or says why it is absent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from ways import AbsentError, JaxWay, Way
from work import Function, Kernel, Work, our_kernels

import jax_graphenc as jge


class Jitted:
    """A peer whose ways are jitted functions.

    Attributes:
        name: of its way, if it has only one.
        ours: whether a failure is the package's own.
    """

    ours = False

    def __init__(
        self, name: str, add: Kernel, spin: Kernel, around: Callable[[Function], Function] | None
    ) -> None:
        self.name = name
        self._kernels = (add, spin)
        self._around = around

    def functions(self, work: Work) -> dict[str, Function]:
        """The work as functions of an array, by way."""
        function = work.of(*self._kernels)
        return {self.name: self._around(function) if self._around else function}

    def ways(self, work: Work) -> dict[str, Way]:
        donated = 0 if work.donate else ()
        return {
            name: JaxWay(
                jax.jit(function, donate_argnums=donated),
                work.argument(),
                feed=work.feed,
                keep=work.keep,
            )
            for name, function in self.functions(work).items()
        }


class Ours(Jitted):
    """The package: a region, or separate kernels."""

    ours = True

    def ways(self, work: Work) -> dict[str, Way]:
        found = super().ways(work)
        if work.keep and self.name == "jge.graph":
            for way in found.values():
                way.kinds = (*way.kinds, "patched")
        return found


def find(gpu: bool) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """The peers that can run here, why others cannot, and what broke; by name."""
    add, spin = our_kernels()
    peers: dict[str, Any] = {
        "jge.graph": Ours("jge.graph", add, spin, lambda f: jge.graph(f, strict=True)),
        "cuda_kernel": Ours("cuda_kernel", add, spin, None),
    }
    absent: dict[str, str] = {}
    broken: dict[str, str] = {}
    for name, make in _OTHERS.items():
        try:
            peers |= make(gpu)
        except AbsentError as error:
            absent[name] = str(error)
        except ModuleNotFoundError as error:
            absent[name] = f"{error.name} is not installed"
        except Exception as error:  # measure the others all the same
            broken[name] = f"{type(error).__name__}: {error}"
    return peers, absent, broken


# Imported on demand, because most machines lack some of their packages.
def _ffi(gpu: bool) -> Mapping[str, Any]:
    from peers.bare import Bare

    return Bare.peers(gpu)


def _warp(gpu: bool) -> Mapping[str, Any]:
    from peers.warp_callables import Warp

    return {"Warp": Warp(gpu)}


def _raw_graph(gpu: bool) -> Mapping[str, Any]:
    from peers.raw_graph import RawGraphs

    return {"raw graph": RawGraphs(gpu)}


def _cupy(gpu: bool) -> Mapping[str, Any]:
    from peers.cupy_graph import CupyGraphs

    return {"CuPy graph": CupyGraphs(gpu)}


_OTHERS = {"FFI call": _ffi, "Warp": _warp, "raw graph": _raw_graph, "CuPy graph": _cupy}

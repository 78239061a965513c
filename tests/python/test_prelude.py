"""test_prelude.py: the names that a source may use without an #include, on every compiler."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from host_kernel import loaded

from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.compiler import host, nvcc, nvrtc
from jax_graphenc.compiler.prelude import ALIASES, CONSTANTS, TYPES
from jax_graphenc.compiler.source import Image, Source

constants = [name for names in CONSTANTS.values() for name in names]
types = [*ALIASES, *(name for names in TYPES.values() for name in names)]

# Each name where an error names it, and each value where it can be seen.
TEXT = (
    "".join(f"static_assert(sizeof({name}) > 0);\n" for name in types)
    + "template <class T> __device__ double value(T v) { return double(v); }\n"
    + "__device__ double value(decltype(nullptr)) { return 0; }\n"
    + 'extern "C" __global__ void k(double* y) {\n'
    + "".join(f"  y[{i}] = value({name});\n" for i, name in enumerate(constants))
    + "".join(f"  y[{len(constants) + i}] = sizeof({name});\n" for i, name in enumerate(types))
    + "  y[0] += std::fabs(0.0f) + std::sqrt(0.0) + std::isnan(1.0f);\n}\n"
)


def values() -> np.ndarray:
    y = np.zeros(len(constants) + len(types))
    with loaded(host.compile_shared_object(Source(TEXT, "names.cu"), ["k"])) as module:
        module.run("k", (1,), (1,), y)
    return y


def on_cpu(source: Source) -> Image:
    return host.compile_shared_object(source, ["k"])


def on_nvrtc(source: Source) -> Image:
    try:
        return nvrtc.compile_image(source, ["k"], "sm_90a")
    except CompilerNotFoundError as error:
        pytest.skip(str(error))


def on_nvcc(source: Source) -> Image:
    if nvcc.find() is None:
        pytest.skip("no nvcc")
    return nvcc.compile_image(source, ["k"], "sm_90a")


@pytest.mark.parametrize("compile_", [on_cpu, on_nvrtc, on_nvcc])
def test_every_name_compiles(compile_: Callable[[Source], Image]) -> None:
    compile_(Source(TEXT, "names.cu"))


@pytest.mark.parametrize("compile_", [on_nvrtc, on_nvcc])
def test_the_names_mean_the_same_for_a_gpu(compile_: Callable[[Source], Image]) -> None:
    seen = values()
    same = [
        f"static_assert(double({name}) == {float(value).hex()});\n"
        for name, value in zip(constants, seen, strict=False)
        if np.isfinite(value) and name != "NULL"
    ]
    same += [
        f"static_assert(sizeof({name}) == {int(size)});\n"
        for name, size in zip(types, seen[len(constants) :], strict=True)
    ]
    kernel = 'extern "C" __global__ void k(double* y) { y[0] = 1; }\n'
    compile_(Source("".join(same) + kernel, "names.cu"))


@pytest.mark.parametrize("compile_", [on_cpu, on_nvrtc, on_nvcc])
def test_a_source_may_define_and_include_them_itself(
    compile_: Callable[[Source], Image],
) -> None:
    text = """
    #include <float.h>
    #include <limits.h>
    #include <math.h>
    #include <stdint.h>
    #include <cstddef>
    #include <cuda_fp16.h>
    #ifndef INFINITY
    #define INFINITY __int_as_float(0x7f800000)
    #endif
    #define M_PI 3.0
    typedef unsigned int uint;
    extern "C" __global__ void k(double* y) { y[0] = M_PI + uint(y[1]) + INT_MAX; }
    """
    image = compile_(Source(text, "names.cu"))
    assert compile_ is on_nvcc or image.log == ""  # whose own headers have M_PI, too

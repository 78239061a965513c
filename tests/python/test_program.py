"""Programs of many nodes behind one custom call, built by hand; and programs as hostile bytes."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.compiler import Source, compile_source
from jax_graphenc.primitives import program_p
from jax_graphenc.program import Buffer, Kernel, Node, Parameter, Program

SIZE = 10
SOURCE = """
extern "C" __global__ void affine(float* data, float scale, float shift) {
  data[threadIdx.x] = scale * data[threadIdx.x] + shift;
}
"""


def target():
    info = jge.device_info()
    if info.driver == "host":
        return "cpu"
    return "sm_{}{}".format(*info.compute_capability)


def affine_kernel():
    image = compile_source(Source(SOURCE, "<affine>"), ("affine",), target(), None)
    return Kernel(
        image.data,
        "affine",
        "affine",
        (
            Parameter("data", True, True, True, 8),
            Parameter("scale", False, False, False, 4),
            Parameter("shift", False, False, False, 4),
        ),
    )


def affine_program(buffers, steps):
    """Steps (buffer, scale, shift) over arrays that are updated in place."""
    kernel = affine_kernel()
    one = (1, 1, 1)
    return Program(
        "affine steps",
        (4 * SIZE,) * buffers,
        (4 * SIZE,) * buffers,
        tuple((i, i) for i in range(buffers)),
        tuple(
            Node(
                kernel,
                one,
                (SIZE, 1, 1),
                one,
                0,
                False,
                (
                    Buffer("result", buffer, 0, 4 * SIZE),
                    np.float32(scale).tobytes(),
                    np.float32(shift).tobytes(),
                ),
            )
            for buffer, scale, shift in steps
        ),
    )


def run(program, *arrays):
    results = tuple((x.shape, x.dtype) for x in arrays)
    return program_p.bind(*arrays, program=program, results=results, uncaptured=True)


def test_one_custom_call_runs_many_nodes():
    program = affine_program(2, [(i % 2, 2.0, 1.0) for i in range(10)])
    f = jax.jit(lambda x, y: run(program, x, y))
    x, y = jnp.ones(SIZE), jnp.zeros(SIZE)
    hlo = f.lower(x, y).compile().as_text()
    assert hlo.count('custom_call_target="jax_graphenc.uncaptured_program.v1"') == 1
    jge.reset_stats()
    for _ in range(4):
        a, b = f(x, y)
        np.testing.assert_array_equal(a, np.full(SIZE, 63))
        np.testing.assert_array_equal(b, np.full(SIZE, 31))
    stats = jge.stats()
    assert stats["direct_launches"] == 10  # the first time
    assert stats["instantiations"] == 1
    assert stats["graph_launches"] == 3


def test_without_graphs_each_node_is_launched():
    program = affine_program(1, [(0, 2.0, 1.0)] * 5)
    f = jax.jit(lambda x: run(program, x))
    with jge.options(use_graphs=False):
        jge.reset_stats()
        for _ in range(3):
            np.testing.assert_array_equal(f(jnp.zeros(SIZE))[0], np.full(SIZE, 31))
        assert jge.stats()["graph_launches"] == 0
        assert jge.stats()["direct_launches"] == 15


def test_the_bytes_describe_themselves():
    program = affine_program(2, [(0, 1.0, 1.0), (1, 1.0, 1.0), (0, 1.0, 1.0)])
    described = _core.describe_program(program.encode())
    assert described["name"] == "affine steps"
    assert described["images"] == 1
    assert [node["dependencies"] for node in described["nodes"]] == [[], [], [0]]
    assert described["nodes"][0]["block"] == (SIZE, 1, 1)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.data())
def test_random_programs_equal_sequential_execution(buffers, data):
    steps = data.draw(
        st.lists(
            st.tuples(
                st.integers(0, buffers - 1), st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 4)
            ),
            max_size=30,
        )
    )
    limit, size = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 8)))
    program = affine_program(buffers, steps)
    arrays = [np.full(SIZE, float(i), np.float32) for i in range(buffers)]
    with jge.options(max_ops_per_graph=limit, graph_cache_size=size, graph_after=0):
        out = run(program, *map(jnp.asarray, arrays))
    for buffer, scale, shift in steps:
        arrays[buffer] = np.float32(scale) * arrays[buffer] + np.float32(shift)
    for got, want in zip(out, arrays, strict=True):
        np.testing.assert_array_equal(got, want)


def test_wrong_programs_are_refused_when_they_are_instantiated():
    good = affine_program(1, [(0, 1.0, 1.0)])
    with pytest.raises(ValueError, match="malformed jax_graphenc program: it ends early"):
        _core.describe_program(good.encode()[:-1])
    shorter = Program(good.name, (8,), (8,), good.aliases, ())
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"argument 0 has 8 bytes.*has 40"):
        jax.block_until_ready(run(shorter, jnp.zeros(SIZE)))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_programs_never_crash(data):
    good = bytearray(affine_program(2, [(0, 1.0, 1.0), (1, 2.0, 1.0)]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        # The image, in the middle, is native code; the rest is ours.
        at = data.draw(st.one_of(st.integers(0, 120), st.integers(len(good) - 300, len(good) - 1)))
        good[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        _core.describe_program(bytes(good))

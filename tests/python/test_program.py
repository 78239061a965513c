"""Programs of many nodes behind one custom call, built by hand; and programs as hostile bytes."""

import contextlib
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Source
from jax_graphenc.primitives.program import program_p
from jax_graphenc.programs.program import Buffer, Kernel, Memcpy, Memset, Node, Parameter, Program

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


@functools.cache
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


def whole(buffer):
    return Buffer("result", buffer, 0, 4 * SIZE)


def bits(value):
    """A float as the element of a memset."""
    return int(np.float32(value).view(np.uint32))


def affine(buffer, scale, shift):
    return Node(
        affine_kernel(),
        (1, 1, 1),
        (SIZE, 1, 1),
        (1, 1, 1),
        0,
        False,
        (whole(buffer), np.float32(scale).tobytes(), np.float32(shift).tobytes()),
    )


def in_place(buffers, nodes, scratch=False):
    """Nodes over arrays that are updated in place, and over scratch behind them."""
    return Program(
        "affine steps",
        (4 * SIZE,) * buffers,
        (4 * SIZE,) * (buffers + scratch),
        tuple((i, i) for i in range(buffers)),
        tuple(nodes),
        buffers if scratch else None,
    )


def affine_program(buffers, steps):
    """Steps (buffer, scale, shift) over arrays that are updated in place."""
    return in_place(buffers, (affine(*step) for step in steps))


def run(program, *arrays):
    results = tuple(map(jax.typeof, arrays))
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
    assert described["scratch"] is None


def fill_and_copy_program():
    """Fills scratch, works on it, copies it to the second half of one array and into another."""
    half = Buffer("result", 0, 2 * SIZE, 2 * SIZE)
    return in_place(
        2,
        (
            Memset(4, 0, whole(2)),
            affine(2, 1.0, 3.0),
            Memcpy(Buffer("result", 2, 0, 2 * SIZE), half),
            Memcpy(whole(2), whole(1)),
            affine(1, 2.0, 0.0),
            Memset(2, 0x4040, Buffer("result", 0, 0, 4)),
        ),
        scratch=True,
    )


def test_the_bytes_describe_memory_nodes():
    described = _core.describe_program(fill_and_copy_program().encode())
    assert described["scratch"] == 2
    assert described["results"] == 3
    fill, _, copy, _, _, narrow = described["nodes"]
    # Buffers are arguments 0 and 1, and then results.
    assert fill == {
        "memset": 0,
        "element_bytes": 4,
        "bytes": 4 * SIZE,
        "buffers": [(4, 0, 4 * SIZE)],
        "accesses": [("to", False, True)],
        "dependencies": [],
        "hazards": [],
    }
    assert copy == {
        "memcpy": 2 * SIZE,
        "buffers": [(4, 0, 2 * SIZE), (2, 2 * SIZE, 2 * SIZE)],
        "accesses": [("from", True, False), ("to", False, True)],
        "dependencies": [1],
        "hazards": [(1, "read-after-write", 0, 0, 2 * SIZE)],
    }
    assert (narrow["memset"], narrow["element_bytes"]) == (0x4040, 2)
    assert [node["dependencies"] for node in described["nodes"]] == [[], [0], [1], [1], [3], []]
    assert described["graphs"] == [[0, 5, 1, 2, 3, 4]]  # by level
    cut = _core.describe_program(fill_and_copy_program().encode(), 3)["graphs"]
    assert cut == [[0, 5, 1], [2, 3, 4]]


@pytest.mark.parametrize("settings", [{"use_graphs": False}, {"graph_after": 0}, {"debug": True}])
def test_fills_and_copies_run_between_kernels(settings):
    program = fill_and_copy_program()
    f = jax.jit(lambda x, y: run(program, x, y))
    with jge.options(**settings):
        for _ in range(3):
            a, b = f(jnp.ones(SIZE), jnp.ones(SIZE))
            first = np.uint32(0x40404040).view(np.float32)
            half = SIZE // 2
            np.testing.assert_array_equal(a, [first] + [1] * (half - 1) + [3] * half)
            np.testing.assert_array_equal(b, np.full(SIZE, 6))


def test_equal_programs_encode_alike_whatever_their_kernels_share():
    shared = affine_kernel()
    nodes = affine_program(1, [(0, 1.0, 1.0), (0, 2.0, 1.0)]).nodes
    apart = (nodes[0], dataclasses.replace(nodes[1], kernel=dataclasses.replace(shared)))
    assert apart[1].kernel is not shared
    assert in_place(1, apart).encode() == in_place(1, nodes).encode()
    other = dataclasses.replace(shared, label="another")
    apart = (nodes[0], dataclasses.replace(nodes[1], kernel=other))
    described = _core.describe_program(in_place(1, apart).encode())
    assert described["images"] == 1
    assert [node["kernel"] for node in described["nodes"]] == ["affine", "another"]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.data())
def test_random_programs_equal_sequential_execution(buffers, data):
    buffer, shift = st.integers(0, buffers - 1), st.integers(0, 4)
    steps = data.draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("affine"), buffer, st.sampled_from([0.5, 1.0, 2.0]), shift),
                st.tuples(st.just("fill"), buffer, shift),
                st.tuples(st.just("copy"), buffer, buffer),
            ),
            max_size=30,
        )
    )
    limit, size = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 60)))
    inputs = [np.full(SIZE, float(i), np.float32) for i in range(buffers)]
    arrays, nodes = list(inputs), []
    for step in steps:
        match step:
            case ("affine", b, scale, add):
                nodes.append(affine(b, scale, add))
                arrays[b] = np.float32(scale) * arrays[b] + np.float32(add)
            case ("fill", b, value):
                nodes.append(Memset(4, bits(value), whole(b)))
                arrays[b] = np.full(SIZE, value, np.float32)
            case ("copy", source, to) if source != to:
                nodes.append(Memcpy(whole(source), whole(to)))
                arrays[to] = arrays[source]
    with jge.options(max_ops_per_graph=limit, graph_cache_size=size, graph_after=0):
        out = run(in_place(buffers, nodes), *map(jnp.asarray, inputs))
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
    good = bytearray(fill_and_copy_program().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        # The image, in the middle, is native code; the rest is ours.
        at = data.draw(st.one_of(st.integers(0, 120), st.integers(len(good) - 450, len(good) - 1)))
        good[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        _core.describe_program(bytes(good))

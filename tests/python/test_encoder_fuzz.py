"""Random work on overlapping slices of a few buffers equals plain sequential numpy.

``make fuzz`` runs 20,000 examples (JAX_GRAPHENC_FUZZ_EXAMPLES); the suite runs fewer.
"""

import contextlib
import os

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.encoder.encoder import Keywords, _program

EXAMPLES = int(os.environ.get("JAX_GRAPHENC_FUZZ_EXAMPLES", "300"))
BUFFERS, SIZE = 3, 16

pytestmark = pytest.mark.usefixtures("cpu")

SOURCE = r"""
extern "C" __global__ void combine(const unsigned* x, unsigned* out, unsigned a, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = a * x[i] + 1;
}
extern "C" __global__ void scale(unsigned* u, unsigned a, unsigned b, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) u[i] = a * u[i] + b;
}
extern "C" __global__ void accumulate(const unsigned* x, unsigned* u, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&u[i], x[i]);
}
"""


def kernel(name, **params):
    shape = {} if params else {"out_shape": lambda x, **_: x}
    return jge.cuda_kernel(SOURCE, name, grid=1, block=4, params=params, **shape)


COMBINE = kernel("combine")
SCALE = kernel("scale", u="inout")
ACCUMULATE = kernel("accumulate", u="inout")


@st.composite
def slices(draw, length=None):
    """(buffer, begin, end)."""
    n = length or draw(st.integers(1, SIZE))
    begin = draw(st.integers(0, SIZE - n))
    return draw(st.integers(0, BUFFERS - 1)), begin, begin + n


def overlap(a, b):
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


@st.composite
def steps(draw):
    """(kernel, slice that is read or None, slice that is written, a, b)."""
    kind = draw(st.sampled_from(["combine", "scale", "accumulate"]))
    to = draw(slices())
    a, b = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    if kind == "scale":
        return kind, None, to, a, b
    source = draw(slices(to[2] - to[1]))
    # Threads of one launch have no order, so its slices are the same or apart.
    if kind == "accumulate" or source != to:
        while overlap(source, to):
            source = ((source[0] + 1) % BUFFERS, *source[1:])
    return kind, source, to, a, b


def independent(step, others):
    """Whether a step commutes with others, so that a concurrent region with them is defined."""
    kind, source, to, *_ = step
    for other_kind, other_source, other_to, *_ in others:
        both_add = kind == other_kind == "accumulate"
        if overlap(to, other_to) and not both_add:
            return False
        if source and overlap(source, other_to):
            return False
        if other_source and overlap(other_source, to):
            return False
    return True


@st.composite
def regions(draw):
    chosen = []
    for step in draw(st.lists(steps(), min_size=1, max_size=6)):
        if independent(step, chosen):
            chosen.append(step)
    return chosen


actions = st.one_of(
    st.tuples(st.just("append"), st.lists(steps(), min_size=1, max_size=6)),
    st.tuples(st.just("concurrent"), regions()),
    st.tuples(st.just("capture"), st.lists(steps(), max_size=4)),
    st.tuples(st.just("discard"), st.lists(steps(), max_size=2)),
    st.tuples(st.just("commit"), st.just([])),
    st.tuples(st.just("synchronize"), st.just([])),
)


def compute(arrays, step):
    """One step in numpy."""
    kind, source, to, a, b = step
    out = arrays[to[0]][to[1] : to[2]]
    if kind == "scale":
        out[:] = np.uint32(a) * out + np.uint32(b)
        return
    x = arrays[source[0]][source[1] : source[2]]
    if kind == "combine":
        out[:] = np.uint32(a) * x + np.uint32(1)
    else:
        out += x


def call_of(arrays, step):
    """Kernel, arrays and values of one step."""
    kind, source, to, a, b = step
    out = arrays[to[0]][to[1] : to[2]]
    n = to[2] - to[1]
    if kind == "scale":
        return SCALE, (out,), {"a": a, "b": b, "n": n}
    x = arrays[source[0]][source[1] : source[2]]
    if kind == "combine":
        return COMBINE, (x, out), {"a": a, "n": n}
    return ACCUMULATE, (x, out), {"n": n}


def append(enc, arrays, step):
    kernel, operands, values = call_of(arrays, step)
    enc.append(kernel, *operands, **values)


def launch(arrays, step, stream):
    """What library code does on a stream that it is given."""
    kernel, operands, values = call_of(arrays, step)
    shapes = tuple((x.shape, x.dtype) for x in operands)
    program, _ = _program(kernel, shapes, Keywords(values), (), jax.devices()[0])
    addresses = [x.ctypes.data for x in operands]
    if kernel is not COMBINE:  # its last array is an argument and a result
        addresses.append(addresses[-1])
    _core.launch_on_stream(program, "host", 0, addresses, stream)


def run(enc, arrays, action, todo):
    if action == "append":
        for step in todo:
            append(enc, arrays, step)
    elif action == "concurrent":
        with enc.concurrent():
            for step in todo:
                append(enc, arrays, step)
    elif action in ("capture", "discard"):
        reads = [arrays[s[0]][s[1] : s[2]] for _, s, *_ in todo if s]
        writes = [arrays[s[0]][s[1] : s[2]] for _, _, s, *_ in todo]
        with contextlib.suppress(KeyError), enc.capture(reads=reads, writes=writes) as stream:
            for step in todo:
                launch(arrays, step, stream)
            if action == "discard":
                raise KeyError
    elif action == "commit":
        enc.commit()
    else:
        enc.synchronize()


@pytest.fixture(scope="module")
def enc():
    with jax.default_device(jax.devices("cpu")[0]), jge.Encoder(jax.devices("cpu")[0]) as encoder:
        yield encoder


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    program=st.lists(actions, max_size=8),
    again=st.integers(1, 3),
    ops=st.integers(1, 12),
    size=st.integers(1, 60),
    after=st.integers(0, 2),
    seed=st.one_of(st.none(), st.integers(0, 2**32)),
)
def test_random_work_equals_sequential_execution(enc, program, again, ops, size, after, seed):
    start = np.arange(BUFFERS * SIZE, dtype=np.uint32).reshape(BUFFERS, SIZE) + np.uint32(1)
    arrays, expected = list(start.copy()), list(start.copy())
    _core.host_set_order_seed(seed)
    try:
        with jge.options(max_ops_per_graph=ops, graph_cache_size=size, graph_after=after):
            for _ in range(again):  # so that graphs are met again, and patched
                for action, todo in program:
                    run(enc, arrays, action, todo)
            enc.synchronize()
    finally:
        _core.host_set_order_seed(None)
    for _ in range(again):
        for action, todo in program:
            for step in todo if action != "discard" else ():
                compute(expected, step)
    np.testing.assert_array_equal(arrays, expected)

"""The builder's programs, run by hand in numpy, against the same operations on plain arrays."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_graphenc.base.option_kinds import SCRATCH_REUSE
from jax_graphenc.calls.call import CallParameter, KernelCall
from jax_graphenc.calls.code import Prebuilt
from jax_graphenc.programs.builder import ProgramBuilder
from jax_graphenc.programs.memory_plan import Storage, ancestors, plan
from jax_graphenc.programs.program import Kernel, Memcpy, Memset, Parameter

U8 = np.dtype(np.uint8)


def make_call(roles, sizes, *, alignment=1, zero_init=(), batch=(), name="k"):
    """A kernel of byte arrays; ``sizes`` are those of its outputs."""
    parameters = tuple(CallParameter(f"p{i}", role, "u8*", U8) for i, role in enumerate(roles))
    return KernelCall(
        label=name,
        code=Prebuilt(()),
        expression=name,
        parameters=parameters,
        results=tuple(((n,), U8) for n in sizes),
        grid=(1, 1, 1),
        block=(1, 1, 1),
        alignment=alignment,
        zero_init=zero_init,
        batch=batch,
    )


def kernel_of(call):
    return Kernel(
        b"image",
        call.name,
        call.name,
        tuple(Parameter(p.name, True, p.role != "out", p.role != "in", 8) for p in call.parameters),
    )


def compute(inputs, sizes, base=None):
    """What a pretended kernel makes: every output byte depends on every input byte."""
    seed = 1
    for x in inputs:
        weights = np.arange(1, len(x) + 1, dtype=np.uint64) * 2 + 1
        seed = (seed * 31 + int((x.astype(np.uint64) * weights).sum())) % 251
    outs = []
    for k, n in enumerate(sizes):
        out = ((np.arange(n) * 7 + seed + k * 13) % 256).astype(np.uint8)
        outs.append(out if base is None or base[k] is None else out + base[k])
    return outs


def run(program, arguments):
    """Runs a program's nodes in order; returns its results and what the caller's arrays are."""
    arguments = [x.copy() for x in arguments]
    rng = np.random.default_rng(0)
    results = [rng.integers(0, 256, n, dtype=np.uint8) for n in program.results]
    for argument, result in program.aliases:
        assert program.arguments[argument] == program.results[result]
        results[result] = arguments[argument]

    def at(buffer):
        memory = (arguments if buffer.side == "argument" else results)[buffer.index]
        assert buffer.offset + buffer.bytes <= len(memory)
        return memory[buffer.offset : buffer.offset + buffer.bytes]

    for node in program.nodes:
        if isinstance(node, Memset):
            assert node.to.side == "result"
            at(node.to).view(f"u{node.element}")[:] = node.value
        elif isinstance(node, Memcpy):
            assert node.to.side == "result"
            at(node.to)[:] = at(node.source).copy()
        else:
            pairs = list(zip(node.kernel.parameters, map(at, node.bindings), strict=True))
            for (p, _), binding in zip(pairs, node.bindings, strict=True):
                assert binding.side == "result" or not p.writes
            alignment = int(node.kernel.label[1:] or 1)
            assert all(b.offset % alignment == 0 for b in node.bindings)
            for i, (p, x) in enumerate(pairs):
                others = [y for j, (_, y) in enumerate(pairs) if j != i]
                assert not (p.writes and any(np.shares_memory(x, y) for y in others))
            inputs = [x.copy() for p, x in pairs if p.reads and not p.writes]
            outputs = [(p, x) for p, x in pairs if p.writes]
            base = [x.copy() if p.reads else None for p, x in outputs]
            made = compute(inputs, [len(x) for _, x in outputs], base)
            for (_, x), value in zip(outputs, made, strict=True):
                x[:] = value
    return results[: len(results) - (program.scratch is not None)], arguments


class Plain:
    """The same operations, on arrays."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.builder = ProgramBuilder("test")
        self.values, self.arrays, self.arguments = [], [], []

    def add(self, value, array):
        assert value.bytes == len(array)
        self.values.append(value)
        self.arrays.append(array)

    def argument(self, n):
        array = self.rng.integers(0, 256, n, dtype=np.uint8)
        self.arguments.append(array)
        self.add(self.builder.argument(n), array)

    def launch(self, roles, picks, sizes, alignment, zeroed):
        operands = [self.values[i] for i in picks]
        arrays = [self.arrays[i] for i in picks]
        reads = iter(arrays)
        inputs, base = [], []
        outputs = iter(sizes)
        shapes = []
        zero = []
        for i, role in enumerate(roles):
            array = next(reads) if role != "out" else None
            if role == "in":
                inputs.append(array)
            elif role == "inout":
                base.append(array)
                shapes.append(len(array))
            else:
                n = next(outputs)
                shapes.append(n)
                base.append(np.zeros(n, np.uint8) if zeroed else None)
                if zeroed:
                    zero.append(f"p{i}")
        call = make_call(
            roles, shapes, alignment=alignment, zero_init=tuple(zero), name=f"k{alignment}"
        )
        kernel = kernel_of(call)
        parameters = tuple(
            dataclasses.replace(p, reads=p.reads or p.name in zero) for p in kernel.parameters
        )
        made = self.builder.launch(
            call, dataclasses.replace(kernel, parameters=parameters), operands
        )
        for value, array in zip(made, compute(inputs, shapes, base), strict=True):
            self.add(value, array)


@st.composite
def steps(draw):
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(
                    ["launch", "launch", "launch", "view", "concat", "concat", "copy", "fill"]
                ),
                st.integers(0, 10**9),
            ),
            min_size=1,
            max_size=20,
        )
    )


@settings(max_examples=400, deadline=None)
@given(
    steps(),
    st.integers(0, 10**6),
    st.sampled_from(SCRATCH_REUSE),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=4),
)
def test_any_program_computes_what_its_operations_say(recipe, seed, reuse, wanted):
    plain = Plain(seed)
    plain.builder = ProgramBuilder("test", reuse=reuse)
    for n in (8, 8, 12):
        plain.argument(n)
    for what, pick in recipe:
        rng = np.random.default_rng(pick)

        def any_value(rng=rng):
            # Mostly a late one, so that chains grow.
            n = len(plain.values)
            return int(rng.integers(n if rng.integers(4) == 0 else min(n, 4))) * -1 + n - 1

        if what == "launch":
            roles = list(rng.choice(["in", "inout", "inout", "out"], rng.integers(1, 4)))
            if not {"inout", "out"} & set(roles):
                roles.append("out")
            picks = [any_value() for role in roles if role != "out"]
            sizes = [int(rng.choice([8, 12, 300])) for role in roles if role == "out"]
            plain.launch(roles, picks, sizes, int(rng.choice([1, 4, 16])), bool(rng.integers(2)))
        elif what == "view":
            i = any_value()
            size = len(plain.arrays[i])
            first = int(rng.integers(size))
            n = int(rng.integers(1, size - first + 1))
            if rng.integers(2) == 0:
                first, n = 0, size
            view = plain.builder.view(plain.values[i], first, n)
            plain.add(view, plain.arrays[i][first : first + n])
        elif what == "concat":
            picks = [any_value() for _ in range(rng.integers(1, 4))]
            made = plain.builder.concatenate([plain.values[i] for i in picks])
            plain.add(made, np.concatenate([plain.arrays[i] for i in picks]))
        elif what == "copy":
            i = any_value()
            plain.add(plain.builder.copy(plain.values[i]), plain.arrays[i])
        else:
            pattern = rng.integers(0, 256, int(rng.choice([1, 2, 4])), dtype=np.uint8)
            made = plain.builder.fill(pattern.tobytes(), 8)
            plain.add(made, np.tile(pattern, 8 // len(pattern)))
    picks = [i % len(plain.values) for i in wanted]
    donated = [(0, j) for j in range(len(picks))]
    program = plain.builder.build([plain.values[i] for i in picks], donated)
    results, after = run(program, plain.arguments)
    for result, i in zip(results, picks, strict=True):
        np.testing.assert_array_equal(result, plain.arrays[i])
    aliased = {argument for argument, _ in program.aliases}
    for i, (before, now) in enumerate(zip(plain.arguments, after, strict=True)):
        if i not in aliased:
            np.testing.assert_array_equal(before, now)


def chain(builder, value, count, roles=("in", "out"), size=1024):
    call = make_call(roles, [size])
    kernel = kernel_of(call)
    for _ in range(count):
        (value,) = builder.launch(call, kernel, [value])
    return value


def test_a_chain_takes_two_slots():
    builder = ProgramBuilder("chain")
    out = chain(builder, builder.argument(1024), 100)
    program = builder.build([out])
    assert program.results == (1024, 2048)
    assert len(program.nodes) == 100


def test_in_place_takes_no_memory_and_no_copy():
    builder = ProgramBuilder("chain")
    out = chain(builder, builder.argument(1024), 100, roles=("inout",))
    program = builder.build([out])
    assert program.results == (1024,)
    assert program.aliases == ((0, 0),)
    assert len(program.nodes) == 100


def test_an_operand_that_is_read_later_is_copied_before_it_is_updated():
    builder = ProgramBuilder("copy")
    x = chain(builder, builder.argument(64), 1, size=64)
    updated = chain(builder, x, 1, roles=("inout",), size=64)
    read = chain(builder, x, 1, size=64)
    program = builder.build([updated, read])
    assert [type(node).__name__ for node in program.nodes] == ["Node", "Memcpy", "Node", "Node"]


def test_pieces_are_written_where_they_end_up():
    builder = ProgramBuilder("pieces")
    x = builder.argument(1024)
    whole = builder.concatenate([chain(builder, x, 1) for _ in range(4)])
    program = builder.build([whole])
    assert program.results == (4096,)
    assert [node.bindings[1].offset for node in program.nodes] == [0, 1024, 2048, 3072]


def test_a_piece_of_a_piece_outlives_what_overwrites_the_whole():
    builder = ProgramBuilder("nested")
    x = builder.argument(16)
    first, second, third = (chain(builder, x, n, size=16) for n in (1, 2, 3))
    half = builder.concatenate([first, second])
    whole = builder.concatenate([half, third])
    updated = chain(builder, whole, 1, roles=("inout",), size=48)
    late = chain(builder, first, 1, size=16)
    program = builder.build([updated, late])
    arguments = [np.arange(16, dtype=np.uint8)]
    (_, result), _ = run(program, arguments)
    expected = arguments[0]
    for _ in range(2):
        (expected,) = compute([expected], [16])
    np.testing.assert_array_equal(result, expected)


def test_a_donated_argument_is_reused_when_it_is_read_before_the_result_is_written():
    for count, aliases in ((1, ()), (2, ((0, 0),))):
        builder = ProgramBuilder("carry")
        out = chain(builder, builder.argument(1024), count)
        assert builder.build([out], [(0, 0)]).aliases == aliases


def test_zeroed_outputs_are_set_before_the_kernel():
    builder = ProgramBuilder("zero")
    call = make_call(("in", "out"), [64], zero_init=("p1",))
    (out,) = builder.launch(call, kernel_of(call), [builder.argument(8)])
    program = builder.build([out])
    assert [type(node).__name__ for node in program.nodes] == ["Memset", "Node"]
    assert program.results == (64,)


def test_a_batch_is_a_node_for_each_element():
    builder = ProgramBuilder("batch")
    # Two levels: the first operand has both, the second only the inner one.
    call = make_call(
        ("in", "in", "out"), [16], batch=((2, (True, False)), (3, (True, True))), alignment=16
    )
    out = builder.launch(
        call, kernel_of(call), [builder.argument(6 * 32), builder.argument(3 * 16)]
    )
    program = builder.build(out)
    offsets = [[b.offset for b in node.bindings] for node in program.nodes]
    assert offsets == [
        [32 * (3 * i + j), 16 * j, 16 * (3 * i + j)] for i in range(2) for j in range(3)
    ]


def test_elements_that_are_not_aligned_are_copied():
    builder = ProgramBuilder("batch")
    call = make_call(("in", "out"), [12], batch=((2, (True,)),), alignment=16)
    out = builder.launch(call, kernel_of(call), [builder.argument(24)])
    program = builder.build(out)
    launches = [node for node in program.nodes if not isinstance(node, Memcpy)]
    assert len(launches) == 2
    assert all(b.offset % 16 == 0 for node in launches for b in node.bindings)
    x = np.arange(24, dtype=np.uint8)
    (result,), _ = run(program, [x])
    expected = [compute([half], [12])[0] for half in (x[:12], x[12:])]
    np.testing.assert_array_equal(result, np.concatenate(expected))


@pytest.mark.parametrize(("reuse", "slots"), [("path", 2), ("order", 1), ("never", 2)])
def test_branches_that_could_run_at_once_do_not_share_memory(reuse, slots):
    # 0 -> 1 and 2 -> 3, independent: the first's memory is free before the second begins.
    storages = [Storage(100, [0, 1]), Storage(100, [2, 3])]
    before = ancestors([[], [0], [], [2]])
    assert plan(storages, before, reuse) == slots * 256


def test_a_slot_is_reused_along_a_path():
    storages = [Storage(100, [0, 1]), Storage(100, [1, 2]), Storage(100, [2, 3])]
    assert plan(storages, ancestors([[], [0], [1], [2]]), "path") == 512
    assert [s.offset for s in storages] == [0, 256, 0]

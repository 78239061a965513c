"""Counters and times, and how they print."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge

X = jnp.arange(64, dtype=jnp.float32)


def make(name, body):
    return jge.cuda_kernel(
        f'extern "C" __global__ void {name}(const float* x, float* out) '
        f"{{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}",
        name,
        out_shape=lambda x: x,
        grid=lambda x: x.size // 32,
        block=32,
    )


double = make("double_", "out[i] = 2 * x[i];")
slow = make("slow", "float s = 0; for (int j = 0; j < 20000; ++j) s += x[j % 64]; out[i] = s;")


@pytest.fixture
def timed():
    jge.reset_stats()
    with jge.options(time_kernels=True):
        yield
    jge.reset_stats()


def by_name(times):
    return {(time.program, time.node): time for time in times}


@pytest.mark.usefixtures("timed")
def test_each_kernel_of_a_region_has_a_time():
    @jge.graph(name="step")
    def step(x):
        return slow(double(double(x)))

    run = jax.jit(step)
    for _ in range(3):
        np.testing.assert_allclose(run(X), np.full(64, np.resize(4 * X, 20000).sum()))
    times = by_name(jge.kernel_times())
    assert times.keys() == {("step", "double_"), ("step", "slow")}
    assert [times["step", name].calls for name in ("double_", "slow")] == [6, 3]
    for time in times.values():
        assert 0 < time.least <= time.total / time.calls <= time.most <= time.total
    # A hundred times as much work, so that no clock can tell otherwise.
    assert times["step", "slow"].least > times["step", "double_"].least
    assert jge.kernel_times()[0].node == "slow"  # the largest total first
    jge.reset_stats()
    assert jge.kernel_times() == ()


@pytest.mark.usefixtures("timed")
def test_calls_that_xla_would_capture_are_timed_too():
    @jax.jit
    def five(x):
        for _ in range(5):
            x = double(x)
        return x

    np.testing.assert_array_equal(five(X), 32 * X)
    assert by_name(jge.kernel_times())["double_", "double_"].calls == 5
    assert "jax_graphenc.uncaptured_program.v1" in five.lower(X).as_text()


def test_what_is_compiled_already_is_timed_too():
    run = jax.jit(lambda x: double(double(x)) + 1)
    run(X).block_until_ready()
    jge.reset_stats()
    with jge.options(time_kernels=True):
        run(X).block_until_ready()
    assert by_name(jge.kernel_times())["double_", "double_"].calls == 2
    assert "uncaptured" not in run.lower(X).as_text()
    jge.reset_stats()


def test_nothing_is_timed_unless_asked():
    jge.reset_stats()
    double(X).block_until_ready()
    assert jge.kernel_times() == ()
    assert "jge.options(time_kernels=True)" in str(jge.kernel_times())


def test_an_option_keeps_kernels_out_of_xlas_command_buffers():
    split = jge.graph(lambda x: double(jax.numpy.sort(double(x))))
    for run in (jax.jit(lambda x: double(x) + 1), jax.jit(split), jax.jit(jax.vmap(double))):
        x = np.stack([X, X])
        assert "uncaptured" not in run.lower(x).as_text()
        with jge.options(use_command_buffers=False):
            text = run.lower(x).as_text()
            assert "@jax_graphenc.uncaptured_program.v1" in text
            assert "@jax_graphenc.program.v1" not in text
            assert all(program.uncaptured for program in jge.explain(run, x).programs)
        assert "uncaptured" not in run.lower(x).as_text()


@pytest.mark.usefixtures("timed")
def test_times_print_as_a_table():
    jax.block_until_ready(slow(double(X)))
    head, first, second = str(jge.kernel_times()).splitlines()
    assert re.split(r"  +", head) == [
        *("program", "node", "calls", "total ms", "share", "mean us", "least us", "most us")
    ]
    assert re.fullmatch(r"slow +slow +1( +[\d.]+%?){5}", first)
    assert re.fullmatch(r"double_ +double_ +1( +[\d.]+%?){5}", second)
    assert len(head) == len(first) == len(second)


def test_counters_print_as_a_table():
    double(X).block_until_ready()
    stats = jge.stats()
    assert dict(stats)["commits"] == stats["commits"] >= 1
    lines = str(stats).splitlines()
    assert len(lines) == len(stats)
    assert len({len(line) for line in lines}) == 1
    assert re.search(rf"^commits +{stats['commits']:,}$", str(stats), re.MULTILINE)


@pytest.mark.parametrize("shown", [jge.stats, jge.device_info, jge.kernel_times])
def test_notebooks_show_what_print_shows(shown):
    class Printer:
        def text(self, text):
            self.shown = text

    printer, value = Printer(), shown()
    value._repr_pretty_(printer, False)
    assert printer.shown == str(value)
    assert "\n" in printer.shown or shown is jge.kernel_times

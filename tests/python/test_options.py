"""Options in scopes: each ends with what it changed undone."""

import contextlib
import dataclasses
import functools
import inspect
import os
import subprocess
import sys

import jax
import pytest

import jax_graphenc as jge
from jax_graphenc.base.options import current


@pytest.fixture(autouse=True)
def defaults():
    with jge.options(debug=False, max_ops_per_graph=None, max_mb_per_graph=None):
        yield


@pytest.mark.usefixtures("cpu")
def test_options_hold_for_a_scope():
    before = jge.graph_limits()
    assert before.ops_source == "table"
    with jge.options(max_ops_per_graph=7):
        assert jge.graph_limits().max_ops == 7
        assert jge.graph_limits().ops_source == "option"
    assert jge.graph_limits() == before


def test_a_scope_that_ends_out_of_order_takes_its_own_options_only():
    first, second = jge.options(debug=True), jge.options(max_ops_per_graph=5)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (current().debug, current().max_ops_per_graph) == (False, 5)
    second.__exit__(None, None, None)
    assert (current().debug, current().max_ops_per_graph) == (False, None)


def test_what_is_set_inside_a_scope_stays_unless_the_scope_changed_it():
    with jge.options(debug=True):
        jge.options(max_mb_per_graph=9, debug=True)
    assert (current().debug, current().max_mb_per_graph) == (False, 9)


def test_a_scope_can_be_entered_again():
    scope = jge.options(debug=True)
    for _ in range(2):
        with scope:
            assert current().debug
        assert not current().debug


@pytest.mark.usefixtures("cpu")
def test_a_scope_may_end_with_an_object_that_goes_with_jaxs_caches():
    class Solver:
        def __init__(self):
            self.scope = jge.options(max_ops_per_graph=7).__enter__()

        def __del__(self):
            self.scope.__exit__(None, None, None)

        @functools.partial(jax.jit, static_argnums=0)
        def step(self, x):
            return x + 1

    Solver().step(1)
    assert current().max_ops_per_graph == 7
    with jge.options(debug=True):
        assert (current().debug, current().max_ops_per_graph) == (True, None)
        assert jge.graph_limits().ops_source == "table"
    assert (current().debug, current().max_ops_per_graph) == (False, None)


def test_a_scope_ends_by_an_error_too():
    with contextlib.suppress(KeyError), jge.options(debug=True):
        raise KeyError
    assert not current().debug


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


KERNEL = """
import jax.numpy as jnp, jax_graphenc as jge
kernel = jge.cuda_kernel(
    'extern "C" __global__ void twice(const float* x, float* out) '
    '{ out[threadIdx.x] = 2 * x[threadIdx.x]; }',
    "twice", out_shape=lambda x: x, grid=1, block=lambda x: x.size)
kernel(jnp.arange(8.0)).block_until_ready()
"""


def test_driver_calls_are_timed_when_asked():
    code = KERNEL + "print(jge.driver_calls().get('cuLaunchKernelEx', (0, 0))[0])"
    assert run(code, JAX_GRAPHENC_TIME_DRIVER_CALLS="1").split() == ["1"]
    assert run(code).split() == ["0"]


def test_batches_are_drawn_when_asked(tmp_path):
    run(KERNEL, JAX_GRAPHENC_SAVE_DOT=str(tmp_path))
    (drawing,) = tmp_path.iterdir()
    assert drawing.name.startswith("graph-")
    assert "twice\\ngrid (1, 1, 1) block (8, 1, 1)" in drawing.read_text()


@pytest.mark.parametrize(
    ("name", "value"), [("max_ops_per_graph", 2**31), ("cache_dir", "~no-such-user/x")]
)
def test_what_no_option_can_hold_is_refused_as_such(name, value):
    with pytest.raises(ValueError, match=f"option {name}={value!r}: .* is expected"):
        jge.options(**{name: value})


def test_names_and_types_of_options_can_be_completed():
    shown = inspect.signature(jge.options)
    assert {*shown.parameters} == {field.name for field in dataclasses.fields(current())}
    assert "debug: bool = Ellipsis" in str(shown).replace("'", "")

"""Configurations that are timed once and remembered: what is chosen, when, and for whom."""

import copy
import importlib
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.kernels.autotune import Autotuned, fastest

pytestmark = pytest.mark.usefixtures("cpu")

TEXT = """
extern "C" __global__ void f(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  static_assert(WORK >= 0, "");
  if (i < n) out[i] = 2 * x[i] + ADD;
}
"""
X = np.arange(256, dtype=np.float32)


def grid_of(x, *, block, **_):
    return jge.cdiv(x.size, block[0])


def make(text=TEXT, **changes):
    definition = {
        "out_shape": lambda x, **_: x,
        "grid": grid_of,
        "block": 32,
        "defines": {"WORK": 1, "ADD": 0},
        "values": {"n": lambda x, **_: x.size},
    }
    return jge.cuda_kernel(text, "f", **{**definition, **changes})


CONFIGS = (
    {"block": 64, "defines": {"WORK": 4000}},
    {"block": 128, "defines": {"WORK": 0}},
    {"block": 32, "defines": {"WORK": 2000}},
)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock of the test's own, on which a run takes WORK seconds."""
    module = importlib.import_module("jax_graphenc.kernels.autotune")
    now = [0.0]
    real = module._compiled

    def compiled(kernel, *arguments):
        run, calls = real(kernel, *arguments)

        def timed(*inputs):
            now[0] += float(dict(kernel.definition.source.defines).get("WORK", 0))
            return run(*inputs)

        return timed, calls

    monkeypatch.setattr(module, "_compiled", compiled)
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])


@pytest.fixture
def folder(tmp_path):
    with jge.options(cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


@pytest.fixture
def measured(monkeypatch):
    """How often something was measured."""
    calls = []
    real = Autotuned._measure

    def count(self, *arguments):
        calls.append(self.__name__)
        return real(self, *arguments)

    monkeypatch.setattr(Autotuned, "_measure", count)
    return calls


def choices(folder):
    found = []
    for path in folder.glob("*.image"):
        contents = path.read_bytes()
        length = int.from_bytes(contents[40:44], "little")
        header = json.loads(contents[44 : 44 + length])
        if "configuration" in header:
            found.append(header)
    return found


# ---------------------------------------------------------------------- launches


def test_functions_of_the_launch_get_the_block_and_macros():
    seen = {}

    def shared_mem(x, *, block, WORK, **keywords):
        seen.update(block=block, WORK=WORK, keywords=keywords)
        return 4 * block[0]

    kernel = make(shared_mem=shared_mem, grid=lambda x, *, ADD, **_: 8 + ADD)
    np.testing.assert_array_equal(kernel(X), 2 * X)
    assert seen == {"block": (32, 1, 1), "WORK": 1, "keywords": {"n": 256}}
    seen.clear()
    # Also where a value is traced, and the kernel a copy that loads it.
    np.testing.assert_array_equal(jax.jit(lambda x, n: kernel(x, n=n))(X, 256), 2 * X)
    assert seen["block"] == (32, 1, 1)


def test_a_parameter_called_block_stays_the_kernels():
    kernel = jge.cuda_kernel(
        'extern "C" __global__ void f(float* out, int block) { out[threadIdx.x] = block; }',
        "f",
        out_shape=jnp.zeros(8),
        grid=lambda *, block: block,
        block=8,
    )
    np.testing.assert_array_equal(kernel(block=3), np.full(8, 3))
    np.testing.assert_array_equal(jax.jit(lambda: kernel(block=3))(), np.full(8, 3))


# ---------------------------------------------------------------------- choices


def test_the_fastest_is_chosen_and_remembered(folder, measured):
    tuned = jge.autotune(make(), CONFIGS)
    np.testing.assert_array_equal(tuned(X), 2 * X)
    assert tuned.config(X) == CONFIGS[1]
    assert measured == ["f"]
    assert [s for _, s in tuned.timings] == [4000, 0, 2000]
    (stored,) = choices(folder)
    assert stored["configuration"] == 1
    # In another process, or a definition that is equal.
    again = jge.autotune(make(), CONFIGS)
    assert again.config(X) == CONFIGS[1]
    assert again.timings == ()
    assert measured == ["f"]
    jge.clear_caches()
    assert tuned.config(X) == CONFIGS[1]
    assert measured == ["f"]
    jge.clear_caches(disk=True)
    tuned.config(X)
    assert measured == ["f", "f"]


@pytest.mark.parametrize(
    "change",
    [
        lambda: jge.autotune(make(TEXT + "// more"), CONFIGS),
        lambda: jge.autotune(make(defines={"WORK": 1, "ADD": 1}), CONFIGS),
        lambda: jge.autotune(make(), CONFIGS[:2]),
        lambda: jge.autotune(make(), [{**CONFIGS[0], "block": 256}, *CONFIGS[1:]]),
        lambda: jge.autotune(make(), [*CONFIGS[:2], {"grid": lambda x, **_: 8}]),
    ],
)
def test_what_a_choice_depends_on(change, folder, measured):
    jge.autotune(make(), CONFIGS).choose(X)
    change().choose(X)
    assert len(measured) == 2


def test_the_key_says_what_is_alike(folder, measured):
    tuned = jge.autotune(make(), CONFIGS)
    tuned(X)
    tuned(X[:128])
    assert len(measured) == 2
    by_class = jge.autotune(make(), CONFIGS, key=lambda x, **_: x.size > 1000)
    by_class(X)
    by_class(X[:128])
    assert len(measured) == 3
    by_class(np.zeros(2000, np.float32))
    assert len(measured) == 4


def test_a_damaged_choice_is_measured_again(folder, measured):
    jge.autotune(make(), CONFIGS).choose(X)
    for path in folder.glob("*.image"):
        path.write_bytes(path.read_bytes()[:-1])
    jge.autotune(make(), CONFIGS).choose(X)
    assert len(measured) == 2


def test_without_a_folder_the_process_remembers(measured):
    with jge.options(cache_dir=None):
        tuned = jge.autotune(make(), CONFIGS)
        tuned(X)
        tuned(X)
        assert len(measured) == 1
        jge.clear_caches()
        tuned(X)
        assert len(measured) == 2


# ---------------------------------------------------------------------- where it may run


def test_a_trace_takes_the_first_and_says_so(folder, measured):
    slow = ({"block": 64, "defines": {"ADD": 5, "WORK": 2}}, {"block": 64})
    tuned = jge.autotune(make(), slow)
    with pytest.warns(jge.NotTunedWarning, match="'f' is not tuned .* first configuration"):
        out = jax.jit(lambda x: tuned(x))(X)
    np.testing.assert_array_equal(out, 2 * X + 5)
    # Constants are staged out under jit, too.
    tuned, x = jge.autotune(make(), slow), jnp.asarray(X)
    with pytest.warns(jge.NotTunedWarning):
        jax.jit(lambda: tuned(x))()
    assert measured == []
    assert choices(folder) == []
    tuned(X)
    assert measured == ["f"]
    for transform in (jax.jit, jge.graph):
        np.testing.assert_array_equal(transform(lambda x: tuned(x))(X), 2 * X)
    batched = jax.vmap(lambda x: tuned(x))(np.stack([X, X + 1]))
    np.testing.assert_array_equal(batched, 2 * np.stack([X, X + 1]))
    assert measured == ["f"]


def test_a_trace_takes_what_is_on_disk(folder, measured):
    jge.autotune(make(), CONFIGS).choose(X)
    tuned = jge.autotune(make(), CONFIGS)
    jax.jit(lambda x: tuned(x))(X)
    assert tuned.config(X) == CONFIGS[1]
    assert len(measured) == 1


def test_nothing_is_timed_in_a_capture(folder, measured):
    tuned = jge.autotune(make(), CONFIGS)
    with jge.Encoder() as encoder:
        with encoder.capture(), pytest.warns(jge.NotTunedWarning):
            assert tuned.choose(X) is tuned._variants[0]
        assert measured == []
        out = np.zeros_like(X)
        encoder.append(tuned.choose(X), X, out)
    np.testing.assert_array_equal(out, 2 * X)
    assert measured == ["f"]


# ---------------------------------------------------------------------- configurations


def test_what_cannot_be_launched_is_left_out(folder):
    configs = (
        {"shared_mem": 1 << 20},
        {"defines": {"WORK": "nothing"}},
        {"block": 2048},
        {"block": 64},
    )
    tuned = jge.autotune(make(), configs)
    np.testing.assert_array_equal(tuned(X), 2 * X)
    assert tuned.config(X) == {"block": 64}
    assert [s is None for _, s in tuned.timings] == [True, True, True, False]
    none = jge.autotune(make(), configs[:3])
    with pytest.raises(jge.LaunchLimitError, match="asks for shared_mem=") as caught:
        none(X)
    assert "no configuration of kernel 'f' can be launched" in caught.value.__notes__


def test_of_equally_fast_ones_the_first_is_taken():
    assert fastest([3.0, 1.005, 1.0, 1.0]) == 1
    assert fastest([None, 2.0, 1.9]) == 2


def test_rules_of_the_kernel_are_the_variants():
    kernel = make()
    kernel.defjvp(lambda primals, tangents, *, n: (kernel(*primals, n=n), 10 * tangents[0]))
    tuned = jge.autotune(kernel, CONFIGS[1:2])
    _, tangent = jax.jvp(tuned, (X,), (X,))
    np.testing.assert_array_equal(tangent, 10 * X)


@pytest.mark.parametrize(
    ("configs", "error", "pattern"),
    [
        ([], ValueError, "a sequence of mappings is expected"),
        ([128], ValueError, "a sequence of mappings is expected"),
        (128, ValueError, "configs=128: a sequence of mappings is expected"),
        ([{"blocks": 128}], TypeError, "blocks is no part of a launch; the parts are block, grid"),
    ],
)
def test_configurations_are_checked(configs, error, pattern):
    with pytest.raises(error, match=pattern):
        jge.autotune(make(), configs)
    with pytest.raises(TypeError, match="a kernel made by cuda_kernel is expected"):
        jge.autotune(lambda x: x, CONFIGS)
    with pytest.raises(ValueError, match="repeats='7': an integer from 1 on is expected"):
        jge.autotune(make(), CONFIGS, repeats="7")
    with pytest.raises(TypeError, match="kernel 'f': input 0: an array is expected"):
        jge.autotune(make(), CONFIGS).choose(jax.ShapeDtypeStruct((8,), jnp.float32))


def test_no_call_of_a_timed_run_is_left_out():
    text = """extern "C" __global__ void g(const float* x, float* u) {
      u[threadIdx.x] += x[threadIdx.x]; }"""
    inplace = jge.cuda_kernel(text, "g", params={"u": "inout"}, grid=1, block=256)
    x = jnp.asarray(X)
    for kernel, arrays in ((make(), [x]), (inplace, [x, x])):
        run, calls = importlib.import_module("jax_graphenc.kernels.autotune")._compiled(
            kernel, arrays, {}, 3
        )
        assert calls == 3
        np.testing.assert_array_equal(run(*arrays), 2 * X)
    np.testing.assert_array_equal(x, X)


def same_shape(x, **_):
    return x


def size_of(x, **_):
    return x.size


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda k: pickle.loads(pickle.dumps(k))]
)
@pytest.mark.usefixtures("folder")
def test_a_copy_takes_what_is_on_disk(measured, copied):
    kernel = make(out_shape=same_shape, values={"n": size_of})
    tuned = jge.autotune(kernel, CONFIGS)
    assert tuned.config(X) == CONFIGS[1]
    timings = tuned.timings
    other = copied(tuned)
    np.testing.assert_array_equal(other(X), 2 * X)
    assert other.config(X) == CONFIGS[1]
    assert other.timings == timings
    assert len(measured) == 1
    jge.clear_caches(disk=True)
    assert other.config(X) == CONFIGS[1]
    assert len(measured) == 2
    tuned.forget()
    assert tuned.config(X) == CONFIGS[1]
    assert len(measured) == 2


def test_modules_can_be_copied_too():
    module = jge.cuda_module(TEXT, defines={"WORK": 1, "ADD": 0})
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert [*other.kernels] == ["f"]

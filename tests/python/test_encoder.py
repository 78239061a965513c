"""The encoder in Python: kernels on arrays in place, regions, captures, handlers, lifetimes."""

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.calls.values import Keywords
from jax_graphenc.compiler import host
from jax_graphenc.devices.capturing import is_capturing
from jax_graphenc.encoder.encoder import _program

SAXPY = r"""
extern "C" __global__ void saxpy(const float* x, const float* y, float* out, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
"""
AFFINE = r"""
extern "C" __global__ void affine(float* data, float scale, float shift) {
  data[threadIdx.x] = scale * data[threadIdx.x] + shift;
}
"""
SIZE = 10

# On a GPU, numpy arrays are no memory of the device; the C++ tests run there.
pytestmark = pytest.mark.usefixtures("cpu")


@pytest.fixture(scope="module")
def saxpy():
    return jge.cuda_kernel(
        SAXPY,
        "saxpy",
        out_shape=lambda x, y, **_: x,
        grid=lambda x, y, **_: jge.cdiv(x.size, 256),
        block=256,
    )


@pytest.fixture(scope="module")
def affine():
    return jge.cuda_kernel(AFFINE, "affine", params={"data": "inout"}, grid=1, block=SIZE)


@pytest.fixture(scope="module")
def failing():
    return jge.cuda_kernel(
        "#include <assert.h>\n"
        'extern "C" __global__ void failing(float* data, int n) { assert(n > 0); data[0] = n; }',
        "failing",
        params={"data": "inout"},
        grid=1,
        block=1,
    )


@pytest.fixture
def enc():
    with jge.Encoder() as encoder:
        yield encoder


@pytest.fixture
def data():
    return np.ones(SIZE, np.float32)


class Kept:
    """Counts those that are alive."""

    alive = 0

    def __init__(self):
        Kept.alive += 1

    def __del__(self):
        Kept.alive -= 1


# ---------------------------------------------------------------------- appending


def test_kernels_work_in_place(saxpy, affine, enc):
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    out = np.zeros(1000, np.float32)
    enc.append(saxpy, x, y, out, a=2.0, n=1000)
    enc.append(affine, out[:SIZE], scale=10.0, shift=1.0)
    np.testing.assert_array_equal(out, 0)  # nothing is committed
    enc.synchronize()
    expected = 2 * x + y
    expected[:SIZE] = 10 * expected[:SIZE] + 1
    np.testing.assert_array_equal(out, expected)


def test_a_launch_may_be_given(saxpy, affine, enc, data):
    x = np.ones(100, np.float32)
    out = np.zeros(100, np.float32)
    enc.append(saxpy, x, x, out, grid=2, block=(4, 1), a=1.0, n=100)
    enc.append(affine, data, scale=1.0, shift=1.0, grid=0)  # launches nothing
    enc.synchronize()
    np.testing.assert_array_equal(out, [2] * 8 + [0] * 92)
    np.testing.assert_array_equal(data, 1)


def test_jax_arrays_are_inputs(saxpy, enc):
    out = np.zeros(4, np.float32)
    x = jnp.arange(4.0) * 2  # perhaps still being computed
    enc.append(saxpy, x, np.ones(4, np.float32), out, a=1.0, n=4)
    x.delete()  # it is kept all the same
    enc.synchronize()
    np.testing.assert_array_equal(out, [1, 3, 5, 7])


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.float16, jnp.bfloat16])
def test_templates_and_dtypes(enc, dtype):
    copy = jge.cuda_kernel(
        "template <typename T> __global__ void copy(const T* x, T* out) {"
        "  out[threadIdx.x] = x[threadIdx.x]; }",
        "copy<{x}>",
        out_shape=lambda x: x,
        grid=1,
        block=lambda x: x.size,
    )
    x = (np.arange(6) % 2).astype(dtype)
    for source in (x, jnp.asarray(x), Foreign(jnp.asarray(x))):
        out = np.zeros(6, dtype)
        enc.append(copy, source, out)
        enc.synchronize()
        np.testing.assert_array_equal(out, x)
    with pytest.raises(TypeError, match=r"output 'out' points to .*; got complex64"):
        enc.append(copy, x, np.zeros(6, np.complex64))


class Foreign:
    """An array of an unknown library that supports DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **keywords):
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_whatever_speaks_dlpack_is_an_array(affine, enc, data):
    enc.append(affine, Foreign(data), scale=3.0, shift=1.0)
    enc.synchronize()
    np.testing.assert_array_equal(data, 4)
    with pytest.raises(TypeError, match=r"'data' has shape \(10,\) with strides \(2,\)"):
        enc.append(affine, Foreign(np.ones(20, np.float32)[::2]), scale=1.0, shift=1.0)
    readonly = np.ones(SIZE, np.float32)
    readonly.flags.writeable = False
    with pytest.raises(TypeError, match="cannot be taken by DLPack"):
        enc.append(affine, Foreign(readonly), scale=1.0, shift=1.0)
    elsewhere = Foreign(data)
    elsewhere.__class__ = type("Elsewhere", (Foreign,), {"__dlpack_device__": lambda self: (2, 0)})
    with pytest.raises(TypeError, match=r"DLPack device \(2, 0\); the encoder is on"):
        enc.append(affine, elsewhere, scale=1.0, shift=1.0)


def test_empty_arrays_are_fine(saxpy, enc):
    empty = np.zeros(0, np.float32)
    enc.append(saxpy, empty, jnp.zeros(0), empty, a=1.0, n=0, grid=1)
    enc.synchronize()


def readonly_array():
    array = np.ones(SIZE, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jnp.ones(SIZE), "output 'data' is a JAX array, which is immutable"),
        (readonly_array, "output 'data' is a read-only numpy array"),
        (lambda: np.ones(2 * SIZE, np.float32)[::2], r"strides \(2,\).*pass a contiguous copy"),
        (lambda: np.ones((4, 3), np.float32).T, r"shape \(3, 4\) with strides \(1, 3\)"),
        (
            lambda: np.zeros(4 * SIZE + 1, np.int8)[1:].view(np.float32),
            "is not aligned to the 4 bytes of its float32",
        ),
        (lambda: np.ones(SIZE), r"input 'data' points to float; got float64\. .*astype"),
        (lambda: np.ones(SIZE, ">f4"), "byte order"),
        (lambda: [1.0] * SIZE, "an array is expected.*__dlpack__; got list"),
        (lambda: None, "an array is expected.*got None"),
    ],
)
def test_wrong_arrays_are_refused(affine, enc, make, message):
    with pytest.raises(TypeError, match=message) as error:
        enc.append(affine, make(), scale=1.0, shift=1.0)
    assert "affine" in str(error.value)


def test_wrong_calls_are_refused(saxpy, affine, enc, data):
    with pytest.raises(TypeError, match=r"takes 3 arrays \(x, y, out\), outputs as well; got 2"):
        enc.append(saxpy, data, data, a=1.0, n=1)
    with pytest.raises(TypeError, match="keyword shift is missing"):
        enc.append(affine, data, scale=1.0)
    with pytest.raises(TypeError, match="color is no by-value parameter"):
        enc.append(affine, data, scale=1.0, shift=1.0, color=1)
    with pytest.raises(ValueError, match="2000 in block"):
        enc.append(affine, data, scale=1.0, shift=1.0, block=2000)
    with pytest.raises(TypeError, match="grid='a' is not made of integers"):
        enc.append(affine, data, scale=1.0, shift=1.0, grid="a")
    with pytest.raises(ValueError, match="shared_mem=-1 has a negative number"):
        enc.append(affine, data, scale=1.0, shift=1.0, shared_mem=-1)
    with pytest.raises(jge.LaunchLimitError, match="does not have"):
        enc.append(affine, data, scale=1.0, shift=1.0, cooperative=True)
    with pytest.raises(TypeError, match="a kernel made by cuda_kernel is expected; got 'saxpy'"):
        enc.append("saxpy", data)
    with pytest.raises(TypeError, match=r"one of jax.devices\(\) is expected; got 0"):
        jge.Encoder(0)
    with pytest.raises(TypeError, match=r"is traced; an encoder works outside of jax\.jit"):
        jax.jit(lambda x: enc.append(saxpy, x, x, data, a=1.0, n=1))(jnp.ones(SIZE))
    enc.synchronize()
    np.testing.assert_array_equal(data, 1)


def test_addresses_must_be_as_many_as_buffers(affine, enc, data):
    program, _ = _program(
        affine,
        ((data.shape, data.dtype),),
        Keywords({"scale": 1.0, "shift": 1.0}),
        (),
        jax.devices()[0],
    )
    native = _core.Encoder("host", 0)
    with pytest.raises(ValueError, match="the program has 2 buffers; got 1 addresses"):
        native.append(program, [data.ctypes.data], [])
    with pytest.raises(ValueError, match="malformed"):
        _core.Program(b"nonsense")
    with pytest.raises(ValueError, match="unknown driver 'vulkan'"):
        _core.Encoder("vulkan", 0)


def test_batches_are_replayed_as_graphs(affine, enc, data):
    jge.reset_stats()
    for _ in range(4):
        for _ in range(10):
            enc.append(affine, data, scale=1.0, shift=1.0)
        enc.commit()
    enc.synchronize()
    np.testing.assert_array_equal(data, 41)
    stats = jge.stats()
    assert stats["commits"] == 4
    assert stats["instantiations"] == 1
    assert stats["graph_launches"] == 3


@pytest.mark.parametrize("graphs", [False, True])
def test_nodes_and_bytes_are_counted(affine, enc, data, graphs):
    other = np.ones(SIZE, np.float32)
    program = jax.jit(lambda x: affine(x, scale=1.0, shift=1.0))
    program(jnp.ones(SIZE))
    with jge.options(use_graphs=graphs, graph_after=0):
        jge.reset_stats()
        for array in (data, other, data[:4]):
            enc.append(affine, array, scale=1.0, shift=1.0, block=array.size)
        assert jge.stats()["nodes"] == jge.stats()["bytes"] == 0  # nothing is committed
        enc.synchronize()
        stats = jge.stats()
        assert (stats["commits"], stats["nodes"], stats["bytes"]) == (1, 3, 80)
        assert (stats["graph_launches"], stats["direct_launches"]) == ((1, 0) if graphs else (0, 3))
        program(jnp.ones(SIZE)).block_until_ready()
        stats = jge.stats()
        assert (stats["commits"], stats["nodes"], stats["bytes"]) == (2, 4, 120)


def test_an_append_commits_a_full_batch(affine, enc, data):
    jge.reset_stats()
    with jge.options(max_ops_per_graph=3):
        for _ in range(10):
            enc.append(affine, data, scale=1.0, shift=1.0)
        assert jge.stats()["commits"] == 3
    enc.synchronize()
    np.testing.assert_array_equal(data, 11)


def test_clear_caches_forgets_programs(affine, enc, data):
    enc.append(affine, data, scale=1.0, shift=1.0)
    assert _program.cache_info().currsize > 0
    jge.clear_caches()
    assert _program.cache_info().currsize == 0
    enc.synchronize()
    np.testing.assert_array_equal(data, 2)


# ---------------------------------------------------------------------- regions and captures


def test_concurrent_nodes_may_run_in_any_order(affine, enc):
    results = set()
    for seed in range(20):
        data = np.ones(SIZE, np.float32)
        _core.host_set_order_seed(seed)
        try:
            with jge.options(graph_after=0):
                with enc.concurrent():
                    enc.append(affine, data, scale=2.0, shift=0.0)
                    enc.append(affine, data, scale=1.0, shift=1.0)
                    enc.append(affine, data, scale=3.0, shift=0.0)
                enc.append(affine, data, scale=1.0, shift=100.0)
                enc.synchronize()
        finally:
            _core.host_set_order_seed(None)
        results.add(float(data[0]))
    assert len(results) > 1  # no edges between them
    assert results <= {107.0, 108.0, 109.0, 112.0}


def test_concurrent_regions_refuse_what_is_out_of_turn(affine, enc, data):
    with enc.concurrent():
        with pytest.raises(ValueError, match="inside another"), enc.concurrent():
            pass
        for wait in (enc.commit, enc.synchronize):
            with pytest.raises(ValueError, match="inside a concurrent region"):
                wait()
        enc.append(affine, data, scale=2.0, shift=0.0)
    enc.synchronize()
    np.testing.assert_array_equal(data, 2)


def test_an_exception_inside_a_concurrent_region_ends_it(affine, enc, data):

    def work():
        with enc.concurrent():
            enc.append(affine, data, scale=2.0, shift=0.0)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    enc.append(affine, data, scale=1.0, shift=1.0)
    enc.synchronize()
    np.testing.assert_array_equal(data, 3)


def launch(kernel, arrays, stream, **values):
    """What library code does with a stream that it is given."""
    keywords = Keywords(values)
    shapes = tuple((x.shape, x.dtype) for x in arrays)
    program, _ = _program(kernel, shapes, keywords, (), jax.devices()[0])
    addresses = [x.ctypes.data for x in arrays]
    if len(arrays) == 1:  # which is an argument and a result
        addresses *= 2
    _core.launch_on_stream(program, "host", 0, addresses, stream)


def test_a_capture_is_one_node(affine, enc, data):
    jge.reset_stats()
    enc.append(affine, data, scale=2.0, shift=0.0)
    with enc.capture(reads=[data], writes=[data]) as stream:
        assert isinstance(stream, int)
        launch(affine, (data,), stream, scale=10.0, shift=1.0)
        launch(affine, (data,), stream, scale=10.0, shift=2.0)
    enc.append(affine, data, scale=1.0, shift=3.0)
    enc.synchronize()
    np.testing.assert_array_equal(data, 215)


def test_a_capture_waits_for_what_it_touches_and_is_waited_for(affine, saxpy, enc):
    for seed in range(20):
        data, copy = np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)
        _core.host_set_order_seed(seed)
        try:
            with jge.options(graph_after=0):
                enc.append(affine, data, scale=1.0, shift=1.0)
                with enc.capture(reads=[data], writes=[copy]) as stream:
                    launch(saxpy, (data, data, copy), stream, a=1.0, n=SIZE)
                enc.append(affine, data, scale=0.0, shift=0.0)
                with enc.capture(writes=[copy]) as stream:
                    launch(affine, (copy,), stream, scale=2.0, shift=0.0)
                enc.append(affine, copy, scale=1.0, shift=3.0)
                enc.synchronize()
        finally:
            _core.host_set_order_seed(None)
        np.testing.assert_array_equal(data, 0)
        np.testing.assert_array_equal(copy, 11)


def test_an_exception_inside_a_capture_discards_it(affine, enc, data):
    enc.append(affine, data, scale=2.0, shift=0.0)

    def work():
        with enc.capture(writes=[data]) as stream:
            launch(affine, (data,), stream, scale=100.0, shift=0.0)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    with enc.capture(writes=[data]) as stream:
        launch(affine, (data,), stream, scale=1.0, shift=1.0)
        with pytest.raises(ValueError, match="inside another"), enc.capture():
            pass
    enc.synchronize()
    np.testing.assert_array_equal(data, 3)


def test_an_exception_inside_a_capture_is_told_where_the_encoder_is_closed(data):
    encoder = jge.Encoder()

    def work():
        with encoder.capture(writes=[data]):
            encoder.close()
            raise KeyError

    with pytest.raises(KeyError):
        work()


def test_the_thread_of_a_capture_is_free_where_another_one_drops_it(data, monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    captures = [jge.Encoder().capture(writes=[data])]
    captures[0].__enter__()
    assert is_capturing()
    thread = threading.Thread(target=captures.clear)
    thread.start()
    thread.join()
    assert not is_capturing()
    assert ignored == []


def test_a_capture_needs_arrays(enc, data):
    wrong = [data, jnp.ones(3)]
    with (
        pytest.raises(TypeError, match=r"writes\[1\] is a JAX array"),
        enc.capture(writes=wrong),
    ):
        pass
    with (
        pytest.raises(TypeError, match=r"reads\[0\]: an array is expected"),
        enc.capture(reads=[1]),
    ):
        pass
    with enc.capture():  # no capture was left open
        pass


# ---------------------------------------------------------------------- completion


def test_handlers_are_called_once_off_the_thread(affine, enc, data):
    calls = []
    enc.append(affine, data, scale=2.0, shift=0.0)
    enc.add_completed_handler(lambda error: calls.append((error, threading.get_ident(), data[0])))
    assert calls == []
    enc.synchronize()
    enc.synchronize()
    [(error, thread, seen)] = calls
    assert error is None
    assert thread != threading.get_ident()
    assert seen == 2
    with pytest.raises(TypeError, match="a function of one argument is expected; got 3"):
        enc.add_completed_handler(3)


def test_an_exception_in_a_handler_is_unraisable(enc, monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: seen.append(info.exc_value.args))

    def handler(error):
        raise KeyError("mine")

    enc.add_completed_handler(handler)
    enc.synchronize()
    assert seen == [("mine",)]


def test_a_handler_cannot_wait_for_itself(affine, enc, data):
    said = []

    def handler(error):
        try:
            enc.synchronize()
        except ValueError as refusal:
            said.append(str(refusal))

    enc.append(affine, data, scale=2.0, shift=0.0)
    enc.add_completed_handler(handler)
    enc.synchronize()
    assert said == ["a completion handler cannot synchronize an encoder of its device"]


def test_a_handler_may_commit_more_work(affine, enc, data):
    other = jge.Encoder()

    def handler(error):
        other.append(affine, data, scale=1.0, shift=5.0)
        other.commit()

    enc.append(affine, data, scale=2.0, shift=0.0)
    enc.add_completed_handler(handler)
    enc.synchronize()
    other.close()
    np.testing.assert_array_equal(data, 7)


# The caller gets the error, whether the worker or synchronize meets it first.
@pytest.mark.parametrize("patience", [0, 0.05])
def test_a_kernel_that_fails_is_told_once(failing, affine, enc, data, patience):
    told = []
    enc.append(failing, data, n=0)
    enc.add_completed_handler(told.append)
    enc.commit()
    threading.Event().wait(patience)
    with pytest.raises(RuntimeError, match="assertion `n > 0' failed"):
        enc.synchronize()
    [error] = told
    assert error is None or "CUDA_ERROR" in error
    if patience:
        assert "CUDA_ERROR" in error
    enc.append(affine, data, scale=2.0, shift=0.0)
    enc.synchronize()
    np.testing.assert_array_equal(data, 2)


def test_kept_objects_go_when_the_work_is_done(affine, enc, data):
    for batch in (1, 2):
        for _ in range(10):
            enc.append(affine, data, scale=1.0, shift=1.0)
            enc.keep(Kept())
        assert Kept.alive == 10
        enc.commit()
        enc.keep(Kept())  # of the next batch
        enc.synchronize()
        assert Kept.alive == 0, batch
    enc.keep(None)


def test_arrays_are_kept_until_the_work_is_done(affine, enc):
    array = np.ones(SIZE, np.float32)
    enc.append(affine, array, scale=2.0, shift=0.0)
    captured = [np.ones(SIZE, np.float32) for _ in range(2)]
    gone = [weakref.ref(x) for x in (array, *captured)]
    with enc.capture(reads=captured[:1], writes=captured[1:]):
        pass
    del array, captured
    gc.collect()
    assert all(x() is not None for x in gone)
    enc.synchronize()
    assert all(x() is None for x in gone)


# ---------------------------------------------------------------------- life


def test_the_context_manager_synchronizes_and_closes(affine, data):
    with jge.Encoder() as encoder:
        encoder.append(affine, data, scale=2.0, shift=0.0)
    np.testing.assert_array_equal(data, 2)
    for use in (encoder.commit, encoder.synchronize, lambda: encoder.keep(1)):
        with pytest.raises(ValueError, match="the encoder is closed"):
            use()
    with pytest.raises(ValueError, match="the encoder is closed"):
        encoder.append(affine, data, scale=2.0, shift=0.0)
    encoder.close()


def test_after_an_exception_what_was_not_committed_is_dropped(affine, data):
    def work():
        with jge.Encoder() as encoder:
            encoder.append(affine, data, scale=2.0, shift=0.0)
            encoder.commit()
            encoder.append(affine, data, scale=100.0, shift=0.0)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    np.testing.assert_array_equal(data, 2)


def test_an_encoder_that_goes_waits_for_its_work(affine):
    array = np.ones(SIZE, np.float32)
    view = array[:]
    encoder = jge.Encoder()
    encoder.append(affine, array, scale=2.0, shift=0.0)
    encoder.commit()
    encoder.append(affine, array, scale=100.0, shift=0.0)
    encoder.keep(Kept())
    assert Kept.alive == 1
    del array, encoder
    gc.collect()
    np.testing.assert_array_equal(view, 2)
    assert Kept.alive == 0  # what kept it was dropped


def test_an_encoder_may_go_while_it_captures(affine, data):
    encoder = jge.Encoder()

    def work():
        with encoder.capture(writes=[data]) as stream:
            launch(affine, (data,), stream, scale=2.0, shift=0.0)
            encoder.close()

    with pytest.raises(ValueError, match="closed"):
        work()
    np.testing.assert_array_equal(data, 1)


def test_an_encoder_for_each_thread(affine):
    arrays = [np.zeros(SIZE, np.float32) for _ in range(2)]
    failures = []

    def work(array):
        try:
            with jge.Encoder() as encoder:
                for i in range(200):
                    encoder.append(affine, array, scale=1.0, shift=1.0)
                    if i % 7 == 0:
                        encoder.add_completed_handler(lambda error: None)
                        encoder.commit()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for array in arrays:
        np.testing.assert_array_equal(array, 200)


def test_one_encoder_for_several_threads(affine, enc, data):
    def work():
        for _ in range(100):
            enc.append(affine, data, scale=1.0, shift=1.0)
            enc.synchronize()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(data, 401)


def test_idle_encoders_cost_nothing():
    encoders = [jge.Encoder() for _ in range(8)]
    for encoder in encoders:
        encoder.add_completed_handler(lambda error: None)
        encoder.synchronize()
    threads = {t.name for t in threading.enumerate()}
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1
    assert {t.name for t in threading.enumerate()} == threads
    for encoder in encoders:
        encoder.close()


TWO_DEVICES = """
import jax
import numpy as np
import jax_graphenc as jge

kernel = jge.cuda_kernel(
    'extern "C" __global__ void add(const float* x, float* u) { u[0] += x[0]; }',
    "add", params={"u": "inout"}, grid=1, block=1)
first, second = jax.devices()
out = np.zeros(1, np.float32)
with jge.Encoder(second) as enc:
    assert enc.device == second
    enc.append(kernel, jax.device_put(np.ones(1, np.float32), second), out)
    try:
        enc.append(kernel, jax.device_put(np.ones(1, np.float32), first), out)
    except TypeError as error:
        print(str(error).replace(str(first), "FIRST").replace(str(second), "SECOND"))
print(out[0])
"""


def test_an_encoder_is_on_one_of_several_devices():
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == [
        "kernel 'add': input 'x' is a JAX array on FIRST; the encoder is on SECOND: pass "
        "jax.device_put(array, device)",
        "1.0",
    ], done.stderr


EXIT = """
import os, sys
import numpy as np
import jax_graphenc as jge

def say(text):  # in one piece, whichever thread says it
    os.write(1, text.encode())

affine = jge.cuda_kernel(
    'extern "C" __global__ void affine(float* data) { data[threadIdx.x] += 1; }',
    "affine", params={"data": "inout"}, grid=1, block=4)
data = np.zeros(4, np.float32)
enc = jge.Encoder()
other = jge.Encoder()
for _ in range(3):
    enc.append(affine, data)
    enc.add_completed_handler(lambda error: say(f"called {error}\\n"))
    enc.commit()
enc.append(affine, data)
enc.add_completed_handler(lambda error: say("never called\\n"))

class Loud:
    def __del__(self):
        say("released\\n")

enc.keep(Loud())
sys.modules["held"] = enc  # for as long as Python lives
MORE
"""


@pytest.mark.parametrize(
    ("more", "status"),
    [("", 0), ("raise SystemExit(3)", 3), ("cycle = [enc]; cycle.append(cycle)", 0)],
)
def test_python_ends_with_work_pending(more, status):
    done = subprocess.run(
        [sys.executable, "-c", EXIT.replace("MORE", more)],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stderr
    assert sorted(done.stdout.splitlines()) == ["called None"] * 3 + ["released"]
    assert done.stderr == ""


# ------------------------------------------------------------------ debug mode


@pytest.mark.skipif("clang" in host.identity(), reason="GCC's checks")
def test_debug_mode_checks_what_is_appended(saxpy, affine):
    x, out = np.arange(SIZE, dtype=np.float32), np.ones(SIZE, np.float32)
    expected = (
        r"kernel 'saxpy' failed: .*<saxpy>:4: reads 4 bytes at offset 40 of 'y' \(40 bytes\) "
        r"in block \(0,0,0\), thread \(10,0,0\)"
    )
    with jge.options(debug=True), jge.Encoder() as encoder:
        encoder.append(affine, out, scale=2.0, shift=1.0)
        encoder.append(saxpy, x, x, out, a=1.0, n=SIZE)
        encoder.append(saxpy, np.arange(20, dtype=np.float32), x, out, a=1.0, n=11, grid=1)
        with pytest.raises(RuntimeError, match=expected):
            encoder.synchronize()
        np.testing.assert_array_equal(out, 2 * x)
        encoder.append(affine, out, scale=2.0, shift=1.0)
        encoder.synchronize()
        np.testing.assert_array_equal(out, 4 * x + 1)


@pytest.mark.skipif("clang" in host.identity(), reason="GCC's checks")
def test_debug_mode_lets_kernels_read_the_callers_outputs():
    adds = jge.cuda_kernel(
        'extern "C" __global__ void adds(const float* x, float* out) '
        "{ out[threadIdx.x] += x[threadIdx.x]; }",
        "adds",
        grid=1,
        block=SIZE,
    )
    x, out = np.arange(SIZE, dtype=np.float32), np.ones(SIZE, np.float32)
    with jge.options(debug=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        with jge.Encoder() as encoder:
            encoder.append(adds, x, out)
    np.testing.assert_array_equal(out, x + 1)

"""Debug mode on the CPU warns of outputs that a kernel reads before anything has written them."""

import threading
import warnings

import jax
import numpy as np
import pytest
from other_process import run_here

import jax_graphenc as jge
from jax_graphenc.compiler import host

pytestmark = [
    pytest.mark.usefixtures("cpu"),
    pytest.mark.skipif("clang" in host.identity(), reason="GCC's checks"),
]

SOURCE = r"""
struct Padded { double a; char b; };
extern "C" __global__ void k(const float* x, float* y, float* z, int n) {
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  const int bytes = blockDim.x / 8;  // 4, which the compiler does not know
  if (n == 0) y[i] += x[i];
  if (n == 1) atomicAdd(&y[t / 2], x[i]);
  if (n == 2) atomicCAS((int*)&y[i], 0, 1);
  if (n == 3 && i == 37) z[0] = y[i + 1];
  if (n == 4) memcpy(z + i, y + i, bytes);
  if (n == 5) for (int k = 0; k < n; ++k) z[i] += x[k];
  if (n == 6) { if (i < 34) y[i] = 1; if (i == 33) z[i] = y[i + 1]; }
  if (n == 7) { y[i] = 1; if (i == 0) z[0] = z[(int)x[0]]; }
  if (n == 10) { y[i] = x[i]; y[i] += 1; }
  if (n == 11) { y[i] = x[i]; __syncthreads(); z[i] = y[i - t + 31 - t]; }
  if (n == 12) { atomicExch(&y[i], x[i]); atomicAdd(&y[i], 1.0f); atomicMax((int*)&y[i], 0); }
  if (n == 13) { memset(y + i, 0, bytes); y[i] += x[i]; }
  if (n == 14) { memcpy(y + i, x + i, bytes); y[i] += x[i]; }
  if (n == 15) { memmove(y + i, x + i, bytes); y[i] += x[i]; }
  if (n == 16 && i < 16) {
    Padded* p = (Padded*)y + i;
    p->a = 1;
    p->b = 2;
    ((Padded*)z)[i] = p[0];
  }
  if (n == 17) for (int k = 0; k < n; ++k) if (x[i] > k) y[i] = k;
  if (n == 18) { y[i] = 0; for (int k = 0; k < n; ++k) if (x[k] > 3) y[i] += x[k]; }
}
"""
X = np.arange(64, dtype=np.float32)


def make(outputs=2, **definition):
    shapes = [jax.ShapeDtypeStruct(X.shape, X.dtype)] * outputs
    return jge.cuda_kernel(SOURCE, "k", out_shape=shapes, grid=2, block=32, **definition)


def make_add():
    source = """extern "C" __global__ void add(const float* x, float* y) {
      y[threadIdx.x] = x[threadIdx.x] + 1;
    }"""
    return jge.cuda_kernel(source, "add", out_shape=lambda x: x, grid=1, block=64)


@pytest.fixture(scope="module")
def kernel():
    return make()


@pytest.fixture(autouse=True)
def debug():
    with jge.options(debug=True):
        yield


def found(kernel, n, x=X):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.block_until_ready(kernel(x, n=n))
    return [w for w in caught if w.category is jge.UninitializedReadWarning]


@pytest.mark.parametrize(
    ("n", "parameter", "line", "size", "offset", "block", "thread"),
    [
        (0, "y", 6, 4, 0, 0, 0),
        (1, "y", 7, 4, 0, 0, 0),
        (2, "y", 8, 4, 0, 0, 0),
        (3, "y", 9, 4, 152, 1, 5),
        (4, "y", 10, 4, 0, 0, 0),
        (5, "z", 11, 4, 0, 0, 0),
        (6, "y", 12, 4, 136, 1, 1),
    ],
)
def test_a_read_before_a_write_is_found(kernel, n, parameter, line, size, offset, block, thread):
    [warning] = found(kernel, n)
    assert str(warning.message) == (
        f"kernel 'k' reads '{parameter}' before anything has written it: <k>:{line}: reads "
        f"{size} bytes at offset {offset} in block ({block},0,0), thread ({thread},0,0). It "
        "begins as whatever was in memory. If the kernel adds to it, say "
        f'zero_init=("{parameter}",); if it updates an array of the caller\'s, '
        f'params={{"{parameter}": "inout"}}'
    )
    assert (warning.filename, warning.lineno) == ("<k>", line)


@pytest.mark.parametrize("n", range(10, 19))
def test_nothing_is_found_in_what_is_written_first(kernel, n):
    assert not found(kernel, n)


def test_nothing_is_found_in_what_begins_as_something():
    zeroed = make(zero_init=("y", "z"))
    assert not found(zeroed, 0)
    np.testing.assert_array_equal(zeroed(X, n=0)[0], X)
    updated = make(1, params={"y": "inout"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(updated(X, X, n=0)[0], 2 * X)


def test_every_parameter_and_every_launch_is_told_and_shown_as_python_says(kernel):
    twice = jge.graph(lambda x, n: kernel(kernel(x, n=n)[0], n=n), static_argnames="n")
    assert len(found(twice, 0)) == 2
    assert len(found(lambda x, n: jax.vmap(lambda x: kernel(x, n=n))(x), 0, np.stack([X, X]))) == 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            jax.block_until_ready(kernel(X, n=0))
        for place in range(3):
            jax.block_until_ready(kernel(X + place, n=7))
    assert [w.lineno for w in caught] == [6, 13, 13, 13]  # each reads elsewhere
    assert "offset 12 in" in str(found(kernel, 7, X + 3)[0].message)


def test_a_warning_that_is_an_error_fails_the_call(kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # JAX raises the one from a call that it has made before, the other from a first one.
        with pytest.raises(
            (ValueError, jax.errors.JaxRuntimeError),
            match=r"jax_graphenc: UninitializedReadWarning: kernel 'k' reads 'y' before",
        ):
            jax.block_until_ready(kernel(X, n=0))
    assert found(kernel, 0)


def test_a_warning_names_a_file_and_comes_before_an_error(tmp_path):
    path = tmp_path / "gather.cu"
    path.write_text(
        'extern "C" __global__ void gather(const float* x, int* at, float* out) {\n'
        "  out[threadIdx.x] = x[at[threadIdx.x] | 1000];\n}\n"
    )
    gather = jge.cuda_kernel(
        path,
        "gather",
        out_shape=lambda x: (jax.ShapeDtypeStruct((8,), np.int32), x),
        grid=1,
        block=8,
    )
    with (
        pytest.warns(jge.UninitializedReadWarning, match="'at'.*: reads 4 bytes") as caught,
        pytest.raises(jax.errors.JaxRuntimeError, match=r"gather\.cu:2: reads 4 bytes at offset"),
    ):
        jax.block_until_ready(gather(X))
    assert (caught[0].filename, caught[0].lineno) == (str(path), 2)


def test_a_hook_may_call_kernels(kernel):
    """On the thread and in the midst of the call that it is told of."""
    add = make_add()
    many = jax.jit(jge.graph(lambda *xs: [add(x) for x in xs]))
    inputs = [np.full(64, i, np.float32) for i in range(40)]

    @jax.jit
    @jge.graph
    def outer(x):
        y, z = kernel(x, n=7)
        for _ in range(7):
            x = add(x)
        return y, z, x

    jax.block_until_ready(many(*inputs))
    inside = []

    def hook(*_, **__):
        inside.append(many(*inputs))
        jax.block_until_ready(inside[-1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jax.block_until_ready(outer(X))
        warnings.simplefilter("always")
        warnings.showwarning = hook
        got = jax.block_until_ready(outer(X))
    np.testing.assert_array_equal(got[0], np.ones_like(X))
    np.testing.assert_array_equal(got[2], X + 7)
    assert inside
    for out, x in zip(inside[0], inputs, strict=True):
        np.testing.assert_array_equal(out, x + 1)


def test_a_hook_that_calls_kernels_leaves_the_error_as_it_is():
    source = (
        'extern "C" __global__ void beyond(const float* x, float* y) {\n'
        "  y[threadIdx.x] += x[threadIdx.x + 1000];\n}\n"
    )
    beyond = jge.cuda_kernel(source, "beyond", out_shape=lambda x: x, grid=1, block=1)
    add = make_add()
    jax.block_until_ready(add(X))
    inside = []

    def hook(*_, **__):
        inside.append(np.asarray(add(X)))
        with pytest.raises(jax.errors.JaxRuntimeError, match="'other'"):
            jax.block_until_ready(other(X))

    other = jge.cuda_kernel(
        source.replace("beyond", "other").replace("+=", "="),
        "other",
        out_shape=lambda x: x,
        grid=1,
        block=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = hook
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"<beyond>:2: reads 4 bytes"):
            jax.block_until_ready(beyond(X))
    np.testing.assert_array_equal(inside[0], X + 1)


def test_a_hook_may_use_an_encoder_that_has_work(kernel):
    """Python's encoders warn of no read, so that none is locked while a hook runs."""
    add, out = make_add(), np.zeros(64, np.float32)
    unset = [np.zeros(64, np.float32) for _ in range(2)]

    with jge.Encoder() as encoder, warnings.catch_warnings():
        inside = []

        def hook(*_, **__):
            encoder.append(add, X, out)
            encoder.synchronize()
            inside.append(out.copy())

        warnings.simplefilter("always")
        warnings.showwarning = hook
        encoder.append(kernel, X, *unset, n=0)
        encoder.synchronize()
        assert not inside
        encoder.append(kernel, X, *unset, n=0)
        jax.block_until_ready(kernel(X, n=0))
    np.testing.assert_array_equal(inside, [X + 1])
    np.testing.assert_array_equal(unset[0], 2 * X)


def test_several_threads_are_told_at_once(kernel):
    def work():
        for _ in range(20):
            jax.block_until_ready(kernel(X, n=0))

    threads = [threading.Thread(target=work) for _ in range(3)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for thread in threads:
            thread.start()
        work()
        for thread in threads:
            thread.join()
    assert len(caught) == 80


def test_a_process_may_end_before_python_is_told():
    code = f"""
import jax, jax.numpy as jnp, numpy as np, jax_graphenc as jge
jge.options(debug=True)
kernel = jge.cuda_kernel({SOURCE!r}, "k", out_shape=lambda x, **_: (x, x), grid=2, block=32)

@jax.jit
def later(x):
    m = jax.lax.fori_loop(0, 20, lambda _, m: m @ m * 1e-3, jnp.ones((600, 600)))
    return kernel(x + 0 * m[0, 0], n=0)

later(np.arange(64, dtype=np.float32))
"""
    run_here(code)  # and finds that it ends well

"""A process ends, and forks, whatever its threads and encoders are doing."""

import os
import signal
import subprocess
import sys

import pytest

PRELUDE = r"""
import os, sys, threading, time, warnings
import jax
import numpy as np
import jax_graphenc as jge
warnings.simplefilter("ignore")  # JAX's about forks
kernel = jge.cuda_kernel(
    'extern "C" __global__ void twice(const float* x, float* out) '
    '{ out[threadIdx.x] = 2 * x[threadIdx.x]; }',
    "twice", out_shape=lambda x: x, grid=1, block=lambda x: x.size)
x = np.arange(8, dtype=np.float32)

def use(encoder=None, array=None):
    out = np.zeros(8, np.float32) if array is None else array
    with encoder or jge.Encoder() as enc:
        enc.append(kernel, x, out)
        enc.synchronize()
        assert np.array_equal(out, 2 * x)

use()
"""


def start(code):
    """Runs code after the prelude; a process that hangs is a failure with its threads' stacks."""
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", PRELUDE + code],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGABRT)  # its children, too
        _, errors = process.communicate()
        pytest.fail(f"it hangs\n{errors}")
    assert process.returncode == 0, errors
    return out, errors


LOOPS = {
    "open": "use()",
    "append": "enc.append(kernel, x, out)",
    "commit": "enc.append(kernel, x, out); enc.commit()",
    "synchronize": "enc.append(kernel, x, out); enc.synchronize()",
    "handlers": "enc.add_completed_handler(print_nothing); enc.commit()",
    "handlers that commit": "enc.add_completed_handler(again); enc.commit(); time.sleep(0.01)",
    "keep": "enc.keep(object()); enc.commit()",
    "captures": "with enc.capture(writes=[out]): pass",
    "device info": "jge.device_info()",
    "one encoder for all": "shared.append(kernel, x, out); shared.commit()",
}

WORK = """
shared = jge.Encoder()
def print_nothing(error):
    pass
def work(loop):
    enc, out = jge.Encoder(), np.zeros(8, np.float32)
    def again(error):
        enc.add_completed_handler(again)
        enc.commit()
    step = compile(loop, "step", "exec")
    while True:
        exec(step, {**globals(), **locals()})
for loop in LOOPS:
    threading.Thread(target=work, args=(loop,), daemon=True).start()
time.sleep(0.2)
"""


def check_end(loops):
    out, errors = start(f"LOOPS = {loops!r}" + WORK)
    assert out == ""
    assert "terminate" not in errors


def test_the_process_ends_while_daemon_threads_work():
    check_end([LOOPS["synchronize"], LOOPS["open"]] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_the_process_ends_while_daemon_threads_do_the_same(loop):
    for _ in range(3):
        check_end([loop] * 4)


FORK = """
def in_child(body):
    child = os.fork()
    if child == 0:
        try:
            body()
        except BaseException as error:
            os.write(1, f"{type(error).__name__}: {error}\\n".encode())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
"""


def test_a_forked_child_opens_encoders_of_its_own():
    out, _ = start(FORK + "in_child(use)\nuse()\nin_child(lambda: (use(), in_child(use)))")
    assert out == ""


def test_a_forked_child_may_not_use_encoders_of_its_parent():
    code = (
        FORK + "enc = jge.Encoder()\nenc.append(kernel, x, np.zeros(8, np.float32))\n"
        "in_child(enc.commit)\nin_child(enc.synchronize)\nin_child(enc.close)\n"
        "in_child(lambda: enc.keep(1))\nenc.synchronize()\nenc.close()"
    )
    out, _ = start(code)
    lines = out.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("ValueError: ")
        assert "os.fork()" in line


@pytest.mark.parametrize("end", ["pass", "enc.close()", "del enc"])
def test_a_forked_child_ends_without_its_parents_work(end):
    # By os._exit, as multiprocessing's children: JAX's own threads would be waited for otherwise.
    code = f"""
import atexit
enc = jge.Encoder()
enc.append(kernel, x, np.zeros(8, np.float32))
enc.add_completed_handler(lambda error: os.write(1, b"handler\\n"))
child = os.fork()
if child == 0:
    {end}
    atexit._run_exitfuncs()
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0
enc.synchronize()
"""
    out, _ = start(code)
    assert out == "handler\n"  # the parent's


def test_a_kernel_under_jit_runs_in_a_forked_child():
    code = "f = jax.jit(kernel)\nnp.asarray(f(x))\n" + FORK
    code += "in_child(lambda: os.write(1, str(np.asarray(f(x))[3]).encode()))"
    out, _ = start(code)
    assert out == "6.0"


def test_a_child_that_forks_while_threads_work_does_not_hang():
    code = (
        FORK
        + """
def work():
    while True:
        use()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for _ in range(10):
    in_child(use)
"""
    )
    out, _ = start(code)
    assert out == ""

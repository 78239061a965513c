"""What a terminal shows: tracebacks end, and warnings point, at the user's line."""

import os
import re
import subprocess
import sys
import textwrap

import pytest

SCRIPT = r"""
import jax
import jax.numpy as jnp
import jax_graphenc as jge

text = 'extern "C" __global__ void twice(const float* x, float* out, int n) {'
end = "for (int i = 0; i < n; ++i) out[i] = 2 * x[i]; }"

def make(text, **changes):
    launch = {"out_shape": lambda x, **_: x, "grid": 1, "block": 1}
    return jge.cuda_kernel(text, "twice", **{**launch, **changes})

x = jnp.arange(3.0)
"""


def last_lines(tmp_path, code, filtering="auto"):
    """The lines of code that each traceback of a script ends with, and what it printed in all."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "JAX_TRACEBACK_FILTERING": filtering},
        capture_output=True,
        text=True,
        check=False,
    )
    shown = done.stderr
    parts = shown.split("Traceback (most recent call last):\n")[1:]
    ends = []
    for part in parts:
        frames = re.findall(r'^  File "(.*)", line \d+, in .*\n    (.*)$', part, re.M)
        ends.append(frames[-1][1] if filtering == "auto" else frames[-1][0])
    return ends, shown


def test_errors_of_a_call_end_at_the_call(tmp_path):
    code = """
    kernel = make(text + end)
    jax.jit(lambda y: kernel(y, n="three"))(x)  # jitted
    """
    ends, shown = last_lines(tmp_path, code)
    assert ends == ['jax.jit(lambda y: kernel(y, n="three"))(x)  # jitted']
    assert "jax_graphenc/" not in shown
    calls = (
        "kernel(None, n=1)",
        "make(text + end, block=2048)(x, n=1)",
        "jge.cuda_kernel(text[:9], 'twice', out_shape=x, grid=1, block=1)",
        "jge.explain(3)",
    )
    for call in calls:
        ends, shown = last_lines(tmp_path, f"kernel = make(text + end)\n{call}")
        assert ends[-1] == call, shown
        assert "jax_graphenc/" not in shown


def test_an_error_of_the_compiler_shows_the_call_and_where_it_was_lowered(tmp_path):
    code = """
    kernel = make(text + "nothing;" + end)

    @jax.jit
    def step(y):
        y = jnp.sin(y)
        return kernel(y, n=3)

    step(x)
    """
    ends, shown = last_lines(tmp_path, code)
    assert ends == ["return kernel(y, n=3)", "step(x)"]
    assert "jax_graphenc/" not in shown


def test_the_users_functions_stay_in_the_traceback(tmp_path):
    code = """
    def grid(x, **_):
        return x.sizes

    make(text + end, grid=grid)(x, n=3)
    """
    ends, shown = last_lines(tmp_path, code)
    assert ends == ["return x.sizes"]
    assert "make(text + end, grid=grid)(x, n=3)" in shown
    assert "jax_graphenc/" not in shown


def test_all_frames_can_be_had(tmp_path):
    ends, _ = last_lines(tmp_path, "make(text + end)(None, n=1)", filtering="off")
    assert ends[-1].endswith("arguments.py")


IPYTHON = """
import sys
import traceback
import types

class Shell:
    compile = types.SimpleNamespace(format_code_name=lambda file: ("Cell", "In[1]"))
    InteractiveTB = types.SimpleNamespace(
        structured_traceback=lambda kind, error, tb: [traceback.extract_tb(tb)[-1].line]
    )

sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: Shell)
"""


def test_in_ipython_a_traceback_ends_in_the_cell(tmp_path):
    # There JAX hides its frames instead of removing them, and IPython shows the last one even so.
    code = """
    broken, kernel = make(text + "nothing;" + end), make(text + end)
    for call in (
        lambda: broken(x, n=3),  # eager
        lambda: jax.jit(lambda y: broken(y, n=3))(x),  # jitted
    ):
        try:
            call()
        except jge.KernelCompileError as error:
            print(*error._render_traceback_(), file=sys.stderr)
    try:
        jax.grad(lambda y: kernel(y, n=3).sum())(x)  # grad
    except NotImplementedError as error:
        print(traceback.extract_tb(error.__traceback__)[-1].line, file=sys.stderr)
    print(jge.explain(lambda y: kernel(y, n=3), x), file=sys.stderr)
    """
    _, shown = last_lines(tmp_path, IPYTHON + textwrap.dedent(code), filtering="tracebackhide")
    ends = re.findall("# (eager|jitted|grad)$", shown, re.M)
    assert ends == ["eager", "jitted", "grad"], shown
    assert re.search(r"called at Cell In\[1\]:\d+ \(<lambda>\)", shown)


@pytest.mark.parametrize("jitted", [True, False])
def test_warnings_point_at_the_users_line(tmp_path, jitted):
    call = "jax.jit(lambda y: kernel(y, n=3))(x)" if jitted else "kernel(x, n=3)"
    code = f"""
    kernel = make(text + 'asm("bar.sync 0;");' + end, reference=lambda x, n: 2 * x)

    def run():
        return {call}

    run()
    """
    _, shown = last_lines(tmp_path, code)
    lines = shown.splitlines()
    assert re.match(r".*/script\.py:\d+: ReferenceUsedWarning: kernel 'twice' runs its", lines[0])
    assert lines[1].strip() == f"return {call}"


def test_a_warning_of_the_cache_points_at_the_users_line(tmp_path):
    code = """
    import os
    folder = os.path.join(os.path.dirname(__file__), "open")
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    jge.options(cache_dir=folder)
    make(text + end)(x, n=3)
    """
    _, shown = last_lines(tmp_path, code)
    lines = shown.splitlines()
    assert re.match(r".*/script\.py:\d+: CacheUnavailableWarning: no cache on disk: ", lines[0])
    assert lines[1].strip() == "make(text + end)(x, n=3)"


def test_operations_remember_the_users_line(tmp_path):
    code = """
    kernel = make(text + end)
    print(jax.jit(lambda y: kernel(y, n=3)).lower(x).as_text(debug_info=True))
    """
    path = tmp_path / "script.py"
    path.write_text(SCRIPT + textwrap.dedent(code))
    out = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert not re.search(r"jax_graphenc/[\w/]*\.py", out.stdout)
    assert "script.py" in out.stdout

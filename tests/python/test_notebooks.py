"""Errors in IPython: they name the cell, and end in it."""

import subprocess
import sys
import textwrap

import pytest

# What ipykernel does: cells are compiled as files that are not there.
SESSION = """
import linecache, os, sys
from IPython.core.compilerop import CachingCompiler
from IPython.core.interactiveshell import InteractiveShell

class Compiler(CachingCompiler):
    def get_code_name(self, raw, code, number):
        return f"/tmp/ipykernel_1/{abs(hash(code))}.py"

shell = InteractiveShell.instance(colors="NoColor")
if sys.argv[1] == "kernel":
    shell.compile = Compiler()
    shell.compiler_class = Compiler
for cell in CELLS:
    print("=== cell")
    shell.run_cell(cell, store_history=True)
"""
KERNEL = """k = jge.cuda_kernel(r'''
extern "C" __global__ void k(const float* x, float* y) {
  y[threadIdx.x] = xx[threadIdx.x];
}
''', "k", out_shape=lambda x: x, grid=1, block=4)
"""


def outputs(cells, shell):
    first = "import jax, numpy as np\nimport jax_graphenc as jge\nx = np.ones(4, np.float32)"
    cells = [first, *map(textwrap.dedent, cells)]
    code = f"CELLS = {cells!r}\n{SESSION}"
    done = subprocess.run(
        [sys.executable, "-c", code, shell],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.split("=== cell")[2:]


@pytest.mark.parametrize("shell", ["terminal", "kernel"])
def test_a_compile_error_names_and_ends_in_its_cell(shell):
    definition = KERNEL + "k(x)"
    jitted = "@jax.jit\ndef f(x):\n    return k(x) + 1\nf(x)"
    region = "jge.graph(lambda x: k(x) + 1)(x)"
    for number, output in enumerate(outputs([definition, jitted, region], shell), start=2):
        *_, last = output.split("KernelCompileError  ")
        assert f"Cell In[{number}], line" in last
        assert "site-packages" not in last
        assert "skipping hidden" not in last
        assert "ipykernel" not in output
        assert "ipython-input" not in output
        # The source stands in the second cell.
        assert 'KernelCompileError: "k" in Cell In[2] does not compile for cpu' in last
        assert "Cell In[2]:3:" in last
        assert "'xx' was not declared" in last


def test_errors_of_a_signature_name_the_cell():
    cell = KERNEL.replace("float* x", "float& x")
    (output,) = outputs([cell], "kernel")
    assert "TypeError: Cell In[2]:2: `k` takes a reference" in output

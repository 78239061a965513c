"""Functions that a process without a GPU has saved run on this one."""

import os
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc import _core
from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.compiler import fatbin
from jax_graphenc.devices.target import architecture

CODE = r"""
import sys
import jax, jax.export, jax.numpy as jnp
import jax_graphenc as jge
twice = jge.cuda_kernel(
    'extern "C" __global__ void twice(const float* x, float* out) '
    '{ out[threadIdx.x] = 2 * x[threadIdx.x]; }',
    "twice", out_shape=lambda x: x, grid=1, block=lambda x: x.size)
four = jge.graph(lambda x: twice(twice(x)), name="four")
assert not jge._core.cuda_driver_was_opened()
jge.options(cuda_targets=sys.argv[1])
function = jax.jit({"kernel": twice, "region": four}[sys.argv[2]])
made = jax.export.export(function, platforms=sys.argv[3].split(","),
                         disabled_checks=jge.export_checks())(jnp.arange(8.0))
open(sys.argv[4], "wb").write(made.serialize())
"""


def saved(tmp_path, target, what, platforms="cuda"):
    path = tmp_path / "saved"
    subprocess.run(
        [sys.executable, "-c", CODE, target, what, platforms, str(path)],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
        check=True,
    )
    return jax.export.deserialize(bytearray(path.read_bytes()))


@pytest.fixture
def capability(gpu):
    info = _core.device_info("cuda", gpu.local_hardware_id)
    return info["compute_major"] * 10 + info["compute_minor"]


@pytest.fixture
def own(gpu):
    return architecture(_core.device_info("cuda", gpu.local_hardware_id))


@pytest.mark.parametrize(("what", "factor"), [("kernel", 2), ("region", 4)])
@pytest.mark.parametrize("platforms", ["cuda", "cpu,cuda"])
def test_for_this_architecture(gpu, own, what, factor, platforms, tmp_path):
    x = jax.device_put(jnp.arange(8.0), gpu)
    loaded = saved(tmp_path, own, what, platforms)
    np.testing.assert_array_equal(loaded.call(x), factor * np.arange(8))
    np.testing.assert_array_equal(jax.jit(loaded.call)(x), factor * np.arange(8))


@pytest.mark.parametrize(("what", "factor"), [("kernel", 2), ("region", 4)])
def test_one_of_several_architectures(gpu, own, what, factor, tmp_path):
    try:
        fatbin._load()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    x = jax.device_put(jnp.arange(8.0), gpu)
    loaded = saved(tmp_path, f"sm_75,{own},sm_120", what)
    np.testing.assert_array_equal(loaded.call(x), factor * np.arange(8))


def test_ptx_where_the_driver_is_as_new_as_the_compiler(gpu, tmp_path):
    info = jge.device_info(gpu)
    if info.driver_version < info.compiler_version:
        pytest.skip("the driver is older than NVRTC")
    x = jax.device_put(jnp.arange(8.0), gpu)
    np.testing.assert_array_equal(saved(tmp_path, "compute_75", "region").call(x), 4 * np.arange(8))


def test_another_architecture_is_an_error(gpu, capability, tmp_path):
    other = "sm_75" if capability >= 80 else "sm_90"
    x = jax.device_put(jnp.arange(8.0), gpu)
    with pytest.raises(jax.errors.JaxRuntimeError, match="does not fit this device"):
        jax.block_until_ready(saved(tmp_path, other, "kernel").call(x))

"""Programs and exported functions of each format that there has been: they decode, and run.

tools/keep_programs.py made them. A CPU image stays valid as long as the driver knows its ABI; of
exported functions JAX says how long it reads them. What is for a GPU runs where one is.
"""

import json
import platform
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from exported import programs

import jax_graphenc as jge
from jax_graphenc import _core

KEPT = Path(__file__).parents[1] / "data" / "programs"
PROGRAMS = sorted(KEPT.rglob("*.program"))
EXPORTED = sorted(KEPT.rglob("*.exported"))


def name_of(path):
    return str(path.relative_to(KEPT))


def read(path):
    """The bytes, and what is known of them."""
    entry = json.loads(path.with_name(f"{path.name}.json").read_text())
    for side in ("arguments", "results"):
        entry[side] = [np.array(a["values"], a["dtype"]) for a in entry[side]]
    return path.read_bytes(), entry


def devices(platforms):
    """Devices here that code kept for these platforms runs on."""
    found = []
    if "cpu" in platforms and platform.machine() == "x86_64":
        found += jax.devices("cpu")[:1]
    if "cuda" in platforms and jax.default_backend() == "gpu":
        here = jge.device_info(jax.devices()[0]).compute_capability
        found += jax.devices()[:1] if here == (9, 0) else []
    return found


def test_every_format_is_kept():
    versions = {path.parent.name for path in (*PROGRAMS, *EXPORTED)}
    assert versions == {f"v{k}" for k in range(1, _core.PROGRAM_VERSION + 1)}


@pytest.mark.parametrize("path", PROGRAMS, ids=name_of)
def test_a_program_runs(path):
    data, entry = read(path)
    described = _core.describe_program(data)
    assert described["arguments"] == len(entry["arguments"])
    results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in entry["results"]]
    if entry["scratch"] is not None:
        results.append(jax.ShapeDtypeStruct((entry["scratch"],), np.uint8))
    assert described["results"] == len(results)
    run = jax.jit(
        lambda *xs: jax.ffi.ffi_call(
            f"jax_graphenc.program.{path.parent.name}",
            results,
            input_output_aliases={int(a): r for a, r in entry["aliases"].items()},
        )(*xs, program=data)
    )
    for device in devices(entry["platforms"]):
        with jax.default_device(device):
            arguments = [jnp.asarray(x) for x in entry["arguments"]]
            for _ in range(3):
                for got, want in zip(run(*arguments), entry["results"], strict=False):
                    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("path", EXPORTED, ids=name_of)
def test_an_exported_function_runs(path):
    data, entry = read(path)
    exported = jax.export.deserialize(bytearray(data))
    assert [*exported.platforms] == entry["platforms"]
    inside = programs(exported)
    assert len(inside) >= len(entry["platforms"])
    for program in inside:
        assert _core.describe_program(program)["nodes"]
    for device in devices(entry["platforms"]):
        with jax.default_device(device):
            results = jax.jit(exported.call)(*map(jnp.asarray, entry["arguments"]))
        for got, want in zip(results, entry["results"], strict=True):
            np.testing.assert_array_equal(got, want)

"""Keeps programs of today's format for the versions to come, which have to run them.

    python tools/keep_programs.py

Writes programs and exported functions to tests/data/programs/v<format>/, by the oldest version of
the format that can hold them, each with inputs and what they give, which
tests/python/test_old_programs.py runs. What is there already stays as it is, so that a format's
folder only grows. Needs GCC and NVRTC, and no GPU; JAX should be the oldest that is supported. The
same tools write the same bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
# Images of 9 kB: without symbols, and sections not on pages of their own.
os.environ["JAX_GRAPHENC_CXX"] = "g++ -s -Wl,--build-id=none,-z,noseparate-code,-z,norelro"

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

import jax_graphenc as jge
from jax_graphenc.compiler.compile import compile_source
from jax_graphenc.compiler.source import Source
from jax_graphenc.programs.program import (
    Buffer,
    Kernel,
    Member,
    Memcpy,
    Memset,
    Node,
    Parameter,
    Program,
)

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "programs"

FLOATS = """
extern "C" __global__ void affine(float* data, float scale, float shift, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = scale * data[i] + shift;
}
extern "C" __global__ void sums(const float* x, float* out) {  // of 32, a block each
  extern __shared__ float s[];
  int i = threadIdx.x;
  s[i] = x[blockIdx.x * blockDim.x + i];
  __syncthreads();
  float sum = s[31 - i];
  for (int k = 16; k > 0; k /= 2) sum += __shfl_xor_sync(0xffffffff, sum, k);
  if (i == 0) out[blockIdx.x] = sum;
}
"""
COUNT = """
extern "C" __global__ void count(const int* x, int* bins) { atomicAdd(&bins[x[threadIdx.x]], 1); }
"""
GROUPS = """
extern "C" __global__ void ranks(int* out) {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  out[blockIdx.x] = rank;
}
extern "C" __global__ void reversed(int* data, int* arrived) {
  int there = data[gridDim.x - 1 - blockIdx.x];
  __threadfence();
  atomicAdd(arrived, 1);
  while (atomicAdd(arrived, 0) < gridDim.x) {}  // all blocks run at once
  data[blockIdx.x] = there;
}
"""

ARRAYS = """
struct Arrays { int n; const float* x; float* out; };
extern "C" __global__ void scaled(float scale, Arrays a) {
  int i = threadIdx.x;
  if (i < a.n) a.out[i] = scale * a.x[i];
}
"""

# ---- Programs ------------------------------------------------------------------------------------

IN, OUT, INOUT = (True, False), (False, True), (True, True)


@functools.cache
def kernel(source: str, name: str, target: str, **parameters: tuple[bool, bool]) -> Kernel:
    names = tuple(re.findall(r"__global__ void (\w+)", source))
    image = compile_source(Source(source, "<kept>"), names, target, None).data
    if target.startswith("compute"):
        # NVRTC writes PTX of its own version, which older drivers refuse.
        image = re.sub(rb"\.version \d+\.\d+", b".version 7.8", image)
    return Kernel(
        image,
        name,
        name,
        tuple(
            Parameter(p, any(access), *access, 8 if any(access) else 4)
            for p, access in parameters.items()
        ),
    )


def node(kernel, grid, block, *bindings, cluster=1, shared_bytes=0, cooperative=False):
    sizes = ((n, 1, 1) for n in (grid, block, cluster))
    values = (b if isinstance(b, Buffer) else b.tobytes() for b in bindings)
    return Node(kernel, *sizes, shared_bytes, cooperative, tuple(values))


def affine(target, data, scale, shift, n):
    made = kernel(FLOATS, "affine", target, data=INOUT, scale=(0, 0), shift=(0, 0), n=(0, 0))
    return node(made, -(-n // 32), 32, data, np.float32(scale), np.float32(shift), np.int32(n))


def every_node(target: str):
    """Kernels of two images, fills, copies, scratch memory and an alias."""
    x, y = Buffer("argument", 0, 0, 256), Buffer("result", 0, 0, 256)
    out, bins = Buffer("result", 1, 0, 8), Buffer("result", 2, 0, 16)
    copy, scratch = Buffer("result", 3, 0, 256), Buffer("result", 4, 0, 256)
    sums = kernel(FLOATS, "sums", target, x=IN, out=OUT)
    count = kernel(COUNT, "count", target, x=IN, bins=INOUT)
    one = int(np.float32(1).view(np.uint32))
    program = Program(
        "every node",
        (256, 256),
        (256, 8, 16, 256, 256),
        ((1, 0),),
        (
            Memset(4, one, scratch),
            affine(target, scratch, 2, 1, 64),
            Memcpy(Buffer("result", 4, 0, 128), Buffer("result", 0, 128, 128)),
            node(sums, 2, 32, y, out, shared_bytes=128),
            Memset(1, 0, bins),
            node(count, 1, 64, x, bins),
            Memcpy(y, copy),
            Memset(2, 0x4040, Buffer("result", 3, 0, 4)),
            affine(target, y, 0.5, -1, 64),
        ),
        scratch=4,
    )
    x = np.arange(64, dtype=np.int32) % 3
    before = np.arange(64, dtype=np.float32)
    y = np.concatenate([before[:32], np.full(32, 3, np.float32)])
    copy = y.copy()
    copy[0] = np.uint32(0x40404040).view(np.float32)
    out = y.reshape(2, 32).sum(axis=1)
    bins = np.bincount(x, minlength=4).astype(np.int32)
    return program, [x, before], [y / 2 - 1, out, bins, copy]


def many_nodes(target: str):
    """Two chains that are independent of each other, for several graphs."""
    chains = Buffer("result", 0, 0, 40), Buffer("result", 1, 0, 40)
    nodes = (affine(target, chains[i % 2], 1, i, 10) for i in range(120))
    program = Program("many nodes", (40, 40), (40, 40), ((0, 0), (1, 1)), tuple(nodes))
    x = np.arange(10, dtype=np.float32)
    return program, [x, -x], [x + sum(range(0, 120, 2)), -x + sum(range(1, 120, 2))]


def no_nodes(target: str):
    x = np.arange(10, dtype=np.float32)
    return Program("no nodes", (40,), (40,), ((0, 0),), ()), [x], [x]


def groups(target: str):
    """A launch in clusters, and a cooperative one, whose blocks wait for each other."""
    data, arrived = Buffer("result", 0, 0, 32), Buffer("result", 1, 0, 4)
    ranks = kernel(GROUPS, "ranks", target, out=OUT)
    reverse = kernel(GROUPS, "reversed", target, data=INOUT, arrived=INOUT)
    nodes = (
        Memset(4, 0, arrived),
        node(ranks, 8, 1, data, cluster=4),
        node(reverse, 8, 1, data, arrived, cooperative=True),
    )
    program = Program("groups", (), (32, 4), (), nodes, scratch=1)
    return program, [], [np.arange(8, dtype=np.int32)[::-1] % 4]


def members(target: str):
    """Pointers in a struct."""
    made = kernel(ARRAYS, "scaled", target, scale=(0, 0), a=(0, 0))
    parameters = (made.parameters[0], dataclasses.replace(made.parameters[1], size=24))
    pointers = (Member(1, 8, "a.x", *IN), Member(1, 16, "a.out", *OUT))
    made = dataclasses.replace(made, parameters=parameters, members=pointers)
    a = np.array([64, 0, 0], np.int64)
    x, y, z = Buffer("argument", 0, 0, 256), *(Buffer("result", i, 0, 256) for i in range(2))
    nodes = (
        node(made, 1, 64, np.float32(2), a, x, y),
        node(made, 1, 64, np.float32(3), a, y, z),
    )
    program = Program("members", (256,), (256, 256), (), nodes)
    x = np.arange(64, dtype=np.float32)
    return program, [x], [2 * x, 6 * x]


# ---- Exported functions --------------------------------------------------------------------------


def define(source, name, **options):
    launch = {"grid": lambda x, *_, **__: jge.cdiv(x.size, 32), "block": 32}
    return jge.cuda_kernel(source, name, **launch | options)


scaled = define(FLOATS, "affine", params={"data": "inout"})
sums_of = define(
    FLOATS,
    "sums",
    shared_mem=128,
    out_shape=lambda x: jax.ShapeDtypeStruct((x.size // 32,), x.dtype),
)


def lone(x):
    """Kernels between operations of XLA's."""
    return sums_of(scaled(2 * x, scale=0.5, shift=1.0, n=64)) + 1, x


def lone_in_numpy(x):
    return [(x + 1).reshape(2, 32).sum(axis=1) + 1, x]


@jge.graph
def region(x):
    """A loop, a batch and memory of its own."""

    def step(x, shift):
        x = scaled(x, scale=1.0, shift=2.0, n=64)
        return x, sums_of(x)

    x, totals = jax.lax.scan(step, x, None, length=3)
    return jax.vmap(sums_of)(jnp.stack([x, x])), totals


def region_in_numpy(x):
    total = x.reshape(2, 32).sum(axis=1)
    return [np.stack([total + 192] * 2), np.stack([total + 64 * k for k in (1, 2, 3)])]


@jge.graph
def long_region(x):
    """As many nodes as XLA is kept from capturing."""
    for _ in range(100):
        x = scaled(x, scale=1.0, shift=1.0, n=64)
    return (x,)


arrays_of = define(ARRAYS, "scaled", grid=1, block=64, out_shape=lambda a_x: a_x)


@jge.graph
def structs(x):
    return (arrays_of(arrays_of(x, scale=2.0, a=(64,)), scale=3.0, a=(64,)),)


def exported(function, platforms, targets=()):
    make = jax.export.export(
        jax.jit(function), platforms=platforms, disabled_checks=jge.export_checks()
    )
    with jge.options(cuda_targets=targets):
        return bytes(make(jax.ShapeDtypeStruct((64,), np.float32)).serialize())


# ---- Writing -------------------------------------------------------------------------------------

X = np.arange(64, dtype=np.float32)
PROGRAMS = {
    "every_node_cpu": (every_node, "cpu"),
    "many_nodes_cpu": (many_nodes, "cpu"),
    "no_nodes_cpu": (no_nodes, "cpu"),
    "every_node_cuda": (every_node, "sm_90a"),
    "every_node_ptx_cuda": (every_node, "compute_80"),
    "groups_cuda": (groups, "sm_90a"),
    "members_cpu": (members, "cpu"),
    "members_cuda": (members, "sm_90a"),
}
EXPORTED = {
    "lone_cpu": (lone, lone_in_numpy, ["cpu"], ()),
    "region_cpu": (region, region_in_numpy, ["cpu"], ()),
    "long_region_cpu": (long_region, lambda x: [x + 100], ["cpu"], ()),
    "lone_cuda": (lone, lone_in_numpy, ["cuda"], "sm_90a,compute_80"),
    "region_both": (region, region_in_numpy, ["cpu", "cuda"], "sm_90a"),
    "long_region_cuda": (long_region, lambda x: [x + 100], ["cuda"], "sm_90a"),
    "structs_cpu": (structs, lambda x: [6 * x], ["cpu"], ()),
    "structs_cuda": (structs, lambda x: [6 * x], ["cuda"], "sm_90a"),
}


def shown(arrays):
    return [{"dtype": str(x.dtype), "values": np.asarray(x).tolist()} for x in arrays]


def keep(name: str, version: int, data: bytes, **entry) -> None:
    file = FOLDER / f"v{version}" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        print(f"{name}: there already")
        return
    entry["arguments"], entry["results"] = shown(entry["arguments"]), shown(entry["results"])
    file.write_bytes(data)
    file.with_name(f"{name}.json").write_text(json.dumps(entry) + "\n")
    print(f"{name}: {len(data)} bytes")


def main() -> None:
    # No path of this machine's in what is kept.
    os.chdir("/")
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*")
    for name, (make, target) in PROGRAMS.items():
        program, arguments, results = make(target)
        keep(
            f"{name}.program",
            program.version,
            program.encode(),
            platforms=["cpu" if target == "cpu" else "cuda"],
            aliases=dict(program.aliases),
            scratch=None if program.scratch is None else program.results[program.scratch],
            arguments=arguments,
            results=results,
        )
    for name, (function, in_numpy, platforms, targets) in EXPORTED.items():
        data = exported(function, platforms, targets)
        module = jax.export.deserialize(bytearray(data)).mlir_module()
        keep(
            f"{name}.exported",
            max(map(int, re.findall(r"jax_graphenc\.\w*program\.v(\d+)", module))),
            data,
            platforms=platforms,
            arguments=[X],
            results=in_numpy(X),
        )


if __name__ == "__main__":
    main()

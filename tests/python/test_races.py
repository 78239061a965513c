"""Threads of a block that access one place without a barrier between: debug mode tells."""

import re

import jax
import numpy as np
import pytest

import jax_graphenc as jge

pytestmark = pytest.mark.usefixtures("cpu")

N = 64


def run(body, block=N, n=N, before="", shared_mem=0):
    kernel = jge.cuda_kernel(
        f'{before}\nextern "C" __global__ void k(const int* x, int* out) {{\n'
        f"  int t = threadIdx.x;\n{body}\n}}",
        "k",
        out_shape=lambda x: x,
        grid=1,
        block=block,
        zero_init=("out",),
        shared_mem=shared_mem,
    )
    with jge.options(debug=True):
        return np.asarray(kernel(np.arange(n, dtype=np.int32) % 7))


SHARED = "  __shared__ int s[64];\n  s[t] = x[t];\n"
COOPERATIVE = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;"

RACY = {
    "no barrier before a mirror": SHARED + "  out[t] = s[63 - t];",
    "reduction without barriers": SHARED
    + "  __syncthreads();\n  for (int d = 32; d; d /= 2) if (t < d) s[t] += s[t + d];\n"
    "  out[t] = s[0];",
    "reduction with the barrier inside the branch's end": SHARED + "  __syncthreads();\n"
    "  for (int d = 32; d; d /= 2) { s[t] += s[(t + d) % 64]; __syncthreads(); }\n"
    "  out[t] = s[0];",
    "warp reduction without __syncwarp": SHARED
    + "  __syncthreads();\n  if (t < 32) { volatile int* v = s;\n"
    "    for (int d = 32; d; d /= 2) v[t] += v[t + d]; }\n  __syncthreads();\n  out[t] = s[0];",
    "warp reduction where all lanes write": SHARED + "  __syncthreads();\n"
    "  if (t < 32) for (int d = 16; d; d /= 2) { s[t] += s[t + d]; __syncwarp(); }\n"
    "  __syncthreads();\n  out[t] = s[0];",
    "scan without a second barrier": SHARED
    + "  __syncthreads();\n  for (int d = 1; d < 64; d *= 2) { int v = t >= d ? s[t - d] : 0;\n"
    "    s[t] += v; __syncthreads(); }\n  out[t] = s[t];",
    "histogram without atomics": "  __shared__ int bins[8];\n  if (t < 8) bins[t] = 0;\n"
    "  __syncthreads();\n  bins[x[t]] += 1;\n  __syncthreads();\n  if (t < 8) out[t] = bins[t];",
    "histogram cleared without a barrier": "  __shared__ int bins[8];\n  if (t < 8) bins[t] = t;\n"
    "  out[t] = bins[x[t]];",
    "stencil in place": SHARED + "  __syncthreads();\n  s[t] = s[(t + 1) % 64];\n"
    "  __syncthreads();\n  out[t] = s[t];",
    "double buffer with one barrier too few": "  __shared__ int s[64];\n"
    "  for (int i = 0; i < 3; ++i) { s[t] = x[t] + i; __syncthreads(); out[t] += s[63 - t]; }",
    "transposed tile without a barrier": "  __shared__ int s[8][8];\n  s[t / 8][t % 8] = x[t];\n"
    "  out[t] = s[t % 8][t / 8];",
    "several threads write different values": "  out[t / 2] = t;",
    "overlapping pairs": "  out[t] = t; if (t < 63) out[t + 1] = -t - 1;",
    "one flag of different values": "  __shared__ int f;\n  f = t;\n  __syncthreads();\n"
    "  out[t] = f;",
    "broadcast without a barrier": "  __shared__ int f;\n  if (t == 0) f = x[3];\n  out[t] = f;",
    "broadcast overwritten": "  __shared__ int f;\n  for (int i = 0; i < 2; ++i) {\n"
    "    if (t == 0) f = i;\n    __syncthreads();\n    out[t] += f;\n  }",
    "in the output": "  out[t] = x[t];\n  int v = out[(t + 5) % 64];\n  __syncthreads();\n"
    "  out[t] = v;",
    "the wrong barrier": SHARED + "  __syncwarp();\n  out[t] = s[63 - t];",
    "a mask of half the warp": SHARED
    + "  __syncwarp(t % 32 < 16 ? 0xffffu : 0xffff0000u);\n  out[t] = s[t ^ 16];",
    "bytes": "  __shared__ char s[64];\n  s[t] = x[t];\n  out[t] = s[63 - t];",
    "wide accesses": "  __shared__ int4 s[64];\n  s[t] = make_int4(t, t, t, t);\n"
    "  out[t] = ((int*)s)[4 * (63 - t)];",
    "a device variable": "  total[x[t] & 1] += x[t];\n  out[t] = t;",
}
MORE = {"a device variable": "__device__ int total[2];"}


@pytest.mark.parametrize("name", RACY)
def test_a_race_is_found(name):
    with pytest.raises(jax.errors.JaxRuntimeError, match="race: ") as caught:
        run(RACY[name], before=MORE.get(name, ""))
    told = str(caught.value)
    assert re.search(r"k: <k>:\d+: race: (reads|writes) \d+ bytes at offset \d+ of '\w+'", told)
    assert re.search(r"which thread \(\d+,0,0\) has (read|written) in <k>:\d+ without", told)
    assert "__syncthreads()" in told


RIGHT = {
    "mirror": SHARED + "  __syncthreads();\n  out[t] = s[63 - t];",
    "reduction": SHARED
    + "  for (int d = 32; d; d /= 2) { __syncthreads(); if (t < d) s[t] += s[t + d]; }\n"
    "  __syncthreads();\n  out[t] = s[0];",
    "warp reduction": SHARED + "  __syncthreads();\n  if (t < 32) for (int d = 32; d; d /= 2) {\n"
    "    int v = s[t + d]; __syncwarp(); s[t] += v; __syncwarp(); }\n"
    "  __syncthreads();\n  out[t] = s[0];",
    "shuffles": "  int v = x[t];\n  for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);\n"
    "  __shared__ int s[2];\n  if (t % 32 == 0) s[t / 32] = v;\n  __syncthreads();\n"
    "  out[t] = s[0] + s[1];",
    "scan": SHARED
    + "  for (int d = 1; d < 64; d *= 2) { __syncthreads(); int v = t >= d ? s[t - d] : 0;\n"
    "    __syncthreads(); s[t] += v; }\n  out[t] = s[t];",
    "histogram": "  __shared__ int bins[8];\n  if (t < 8) bins[t] = 0;\n  __syncthreads();\n"
    "  atomicAdd(&bins[x[t]], 1);\n  __syncthreads();\n  if (t < 8) out[t] = bins[t];",
    "double buffer": "  __shared__ int s[2][64];\n  for (int i = 0; i < 3; ++i) {\n"
    "    s[i % 2][t] = x[t] + i; __syncthreads(); out[t] += s[i % 2][63 - t]; }",
    "one value from all": "  __shared__ int f;\n  f = 1;\n  __syncthreads();\n  out[t] = f;",
    "lock": "  __shared__ int lock, sum;\n  if (t == 0) lock = sum = 0;\n  __syncthreads();\n"
    "  for (bool done = false; !done;) if (atomicCAS(&lock, 0, 1) == 0) {\n"
    "    sum += x[t]; __threadfence_block(); atomicExch(&lock, 0); done = true; }\n"
    "  __syncthreads();\n  out[t] = sum;",
    "maximum by a loop": "  int old = out[0], seen;\n"
    "  do { seen = old; old = atomicCAS(&out[0], seen, max(seen, x[t])); } while (seen != old);",
    "tiles": "  auto tile = cg::tiled_partition<8>(cg::this_thread_block());\n"
    "  __shared__ int s[64];\n  s[t] = x[t];\n  tile.sync();\n  out[t] = s[t ^ 7];",
    "bytes": "  __shared__ char s[64];\n  s[t] = x[t];\n  __syncthreads();\n  out[t] = s[63 - t];",
    "dynamic": "  extern __shared__ int s[];\n  s[t] = x[t];\n  __syncthreads();\n"
    "  out[t] = s[63 - t];",
    "several blocks of time": SHARED
    + "  for (int i = 0; i < 100; ++i) { __syncthreads(); int v = s[(t + i) % 64];"
    " __syncthreads();\n"
    "    s[t] = v; }\n  out[t] = s[t];",
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_ordered_is_no_race(name):
    run(RIGHT[name], before=COOPERATIVE, shared_mem=256 if name == "dynamic" else 0)


def test_blocks_and_launches_do_not_race_with_each_other():
    kernel = jge.cuda_kernel(
        'extern "C" __global__ void k(int* u) { if (threadIdx.x == blockIdx.x) u[0] += 1; }',
        "k",
        params={"u": "inout"},
        grid=8,
        block=8,
    )
    with jge.options(debug=True):
        u = np.zeros(1, np.int32)
        for _ in range(3):
            u = kernel(u)
    assert u[0] == 24


def test_without_debug_mode_a_race_is_not_told():
    kernel = jge.cuda_kernel(
        'extern "C" __global__ void k(int* out) { out[0] = threadIdx.x; }',
        "k",
        out_shape=jax.ShapeDtypeStruct((1,), np.int32),
        grid=1,
        block=8,
    )
    assert kernel()[0] == 7

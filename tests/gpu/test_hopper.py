"""What only Hopper has, by hand in PTX: tensor cores that read shared memory, and bulk copies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_graphenc as jge
from jax_graphenc.base.errors import CompilerNotFoundError
from jax_graphenc.compiler import nvrtc_library

# In the PTX manual's words: a core matrix is 8 rows of 16 bytes, one behind the other. Without
# swizzle and with k as the fast dimension ("K-major"), an operand is core matrices in any regular
# order; its descriptor has the distances between neighbours: along k (leading), and along m or n
# (stride).
WGMMA = r"""
#include <cuda_bf16.h>

#include <cstdint>

constexpr int kTile = 64;  // rows of a, rows of b, and elements of k in a step
constexpr int kChunk = 16 / sizeof(__nv_bfloat16);  // elements in a row of a core matrix
constexpr int kCore = 128;                          // bytes in a core matrix
constexpr int kAlongK = kCore;                      // from a core matrix to the next along k
constexpr int kAlongRows = kTile / kChunk * kCore;  // and to the next along m or n

__device__ uint64_t descriptor(const void* shared) {
  const auto encode = [](uint64_t bytes) { return (bytes & 0x3ffff) >> 4; };
  return encode(__cvta_generic_to_shared(shared)) | encode(kAlongK) << 16 |
         encode(kAlongRows) << 32;  // bits 62 and 63: no swizzle
}

// A tile of 64 rows and 64 columns as core matrices. Eight lanes write the 128 bytes of one,
// without bank conflicts, and four times eight lanes read 64 adjacent bytes of eight rows.
__device__ void load_tile(const __nv_bfloat16* from, int width, uint4* tile) {
  for (int i = threadIdx.x; i < kTile * kTile / kChunk; i += blockDim.x) {
    const int row = i % 8 + i / 64 * 8, chunk = i / 8 % 8;
    tile[(row / 8 * (kTile / kChunk) + chunk) * 8 + row % 8] =
        *reinterpret_cast<const uint4*>(from + size_t(row) * width + chunk * kChunk);
  }
}

__device__ void multiply_add(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}

// c = a b^T: a is (m, k), b (n, k), c (m, n); all are multiples of 64. One warpgroup per tile of c.
extern "C" __global__ void __launch_bounds__(128)
    wgmma(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
  __shared__ __align__(128) uint4 tile_a[kTile * kTile / kChunk], tile_b[kTile * kTile / kChunk];
  const size_t top = size_t(blockIdx.y) * kTile, left = size_t(blockIdx.x) * kTile;
  float d[32] = {};
  for (int inner = 0; inner < k; inner += kTile) {
    load_tile(a + top * k + inner, k, tile_a);
    load_tile(b + left * k + inner, k, tile_b);
    // What was written in the ordinary way must be seen by the asynchronous proxy.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < kTile / 16; ++step) {  // 16 elements of k are two core matrices
      multiply_add(d, descriptor(tile_a) + (2 * kAlongK >> 4) * step,
                   descriptor(tile_b) + (2 * kAlongK >> 4) * step);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    // Nothing that reads the sums may be moved before the wait.
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");
    __syncthreads();  // the tiles may be overwritten
  }
  // A warp has 16 rows; a lane two neighbours in each eight columns, and the same eight rows below.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int row = warp * 16 + i / 2 % 2 * 8 + lane / 4, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    c[(top + row) * n + left + column] = d[i];
  }
}
"""

# A pipeline of two stages. A thread asks for a tile, and says how many bytes will come; all wait on
# the stage's barrier, whose phase alternates each time that the stage is used.
BULK_COPY = r"""
#include <cstdint>

constexpr int kStages = 2;

__device__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ void wait_for(uint64_t* barrier, unsigned phase) {
  asm volatile(
      "{\n"
      "  .reg .pred done;\n"
      "again:\n"
      "  mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "  @!done bra again;\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}

// out[i] = x[i] + the first element of i's tile; n is a multiple of 4, which are 16 bytes.
extern "C" __global__ void __launch_bounds__(BLOCK) bulk_copy(const float* x, float* out, int n) {
  __shared__ __align__(128) float loaded[kStages][TILE];
  __shared__ __align__(128) float made[TILE];
  __shared__ uint64_t arrived[kStages];
  const int tiles = (n + TILE - 1) / TILE;
  const auto size_of = [&](int tile) { return min(TILE, n - tile * TILE); };
  const auto ask_for = [&](int tile, int stage) {
    if (threadIdx.x != 0 || tile >= tiles) return;
    const uint32_t bytes = 4 * size_of(tile), barrier = shared_address(&arrived[stage]);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(loaded[stage])),
        "l"(__cvta_generic_to_global(x + tile * TILE)), "r"(bytes), "r"(barrier)
        : "memory");
  };

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[stage]))
                   : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  for (int stage = 0; stage < kStages; ++stage) ask_for(blockIdx.x + stage * gridDim.x, stage);
  int used = 0;  // how many tiles this block has done
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++used) {
    const int stage = used % kStages;
    wait_for(&arrived[stage], used / kStages % 2);
    for (int i = threadIdx.x; i < size_of(tile); i += BLOCK) {
      made[i] = loaded[stage][i] + loaded[stage][0];
    }
    // The copy out must see what was written; the next copy in comes behind all reads.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    ask_for(tile + kStages * gridDim.x, stage);
    if (threadIdx.x == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                       __cvta_generic_to_global(out + tile * TILE)),
                   "r"(shared_address(made)), "r"(4 * size_of(tile))
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncthreads();  // what was made has been read
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
"""
TILE, BLOCK = 1024, 128

wgmma = jge.cuda_kernel(
    WGMMA,
    "wgmma",
    out_shape=lambda a, b, **_: jax.ShapeDtypeStruct((a.shape[0], b.shape[0]), jnp.float32),
    grid=lambda a, b, **_: (b.shape[0] // 64, a.shape[0] // 64),
    block=128,
    values={"n": lambda a, b, **_: b.shape[0], "k": lambda a, b, **_: a.shape[1]},
    reference=lambda a, b, **_: jnp.matmul(a, b.T, preferred_element_type=jnp.float32),
)
bulk_copy = jge.cuda_kernel(
    BULK_COPY,
    "bulk_copy",
    defines={"TILE": TILE, "BLOCK": BLOCK},
    out_shape=lambda x, **_: x,
    grid=lambda x, **_: min(3, jge.cdiv(x.size, TILE)),
    block=BLOCK,
    values={"n": lambda x, **_: x.size},
)


def test_both_compile_for_hopper():
    """Needs NVRTC, but no GPU."""
    try:
        nvrtc_library.version()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))

    def f(a, b, x):
        return wgmma(a, b), bulk_copy(x)

    a = jnp.zeros((64, 64), jnp.bfloat16)
    checks = jge.export_checks()
    with jge.options(cuda_targets="sm_90a"):
        jax.export.export(jax.jit(f), platforms=["cuda"], disabled_checks=checks)(
            a, a, jnp.zeros(64)
        )
    with jge.options(cuda_targets="sm_80"), pytest.raises(jge.KernelCompileError, match="wgmma"):
        jax.export.export(jax.jit(wgmma), platforms=["cuda"], disabled_checks=checks)(a, a)


@pytest.fixture(scope="module")
def hopper(gpu):
    if jge.device_info().compute_capability != (9, 0):
        pytest.skip(f"needs compute capability 9.0: {jge.device_info().name} has another")


def whole_numbers(seed, *shape):
    """Whose products and sums are exact in float, also where tensor cores add them up."""
    x = np.random.default_rng(seed).integers(-8, 9, shape)
    return jnp.asarray(x, jnp.bfloat16)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (128, 192, 256)])
def test_tensor_cores_that_read_shared_memory(m, n, k):
    a, b = whole_numbers(1, m, k), whole_numbers(2, n, k)
    wanted = np.asarray(a, np.float32) @ np.asarray(b, np.float32).T
    np.testing.assert_array_equal(jax.jit(wgmma)(a, b), wanted)
    region = jax.jit(jge.graph(lambda a, b: (wgmma(a, b), wgmma(b, a))))
    for _ in range(3):
        for got, expected in zip(region(a, b), (wanted, wanted.T), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("n", [4, 1024, 10_000, 20 * TILE])
def test_bulk_copies(n):
    x = jnp.arange(n, dtype=jnp.float32)
    first = x // TILE * TILE  # of each element's tile
    np.testing.assert_array_equal(jax.jit(bulk_copy)(x), x + first)
    region = jax.jit(jge.graph(lambda x: bulk_copy(bulk_copy(x))))
    for _ in range(3):
        np.testing.assert_array_equal(region(x), x + 3 * first)

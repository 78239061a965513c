"""test_device_functions.py: CUDA's own functions on the CPU, against a GPU's results and scipy."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from host_kernel import loaded

import jax_graphenc as jge
from jax_graphenc.compiler import host
from jax_graphenc.compiler.source import Source

pytestmark = pytest.mark.usefixtures("cpu")

# ---- Integer functions, bit for bit --------------------------------------------------------------

PARTS = (
    *("vadd", "vsub", "vaddss", "vsubss", "vaddus", "vsubus", "vavgs", "vavgu", "vhaddu", "vmaxs"),
    *("vmaxu", "vmins", "vminu", "vabsdiffs", "vabsdiffu", "vsads", "vsadu"),
)
COMPARISONS = ("eq", "ne", "ges", "geu", "gts", "gtu", "les", "leu", "lts", "ltu")
OF_THREE = ("s32", "u32", "s16x2", "u16x2", "s32_relu", "s16x2_relu")


def integer_calls() -> list[str]:
    one = [f"__{name}{n}(a)" for name in ("vabs", "vabsss", "vneg", "vnegss") for n in (2, 4)]
    names = (*PARTS, *(f"v{kind}{c}" for kind in ("cmp", "set") for c in COMPARISONS))
    two = [f"__{name}{n}(a,b)" for name in names for n in (2, 4)]
    two += [f"__{name}(a,b)" for name in ("hadd", "rhadd", "uhadd", "urhadd")]
    two += [f"__vi{m}_{k}_relu(a,b)" for k in ("s16x2", "s32") for m in ("max", "min")]
    names = ("vimax3", "vimin3", "viaddmax", "viaddmin")
    three = [f"__{name}_{kind}(a,b,c)" for name in names for kind in OF_THREE]
    three += ["__funnelshift_lc(a,b,c%40)", "__funnelshift_rc(a,b,c%40)"]
    for name in ("__dp4a", "__dp2a_lo", "__dp2a_hi"):
        three += [f"{name}(a,b,c)", f"{name}((int)a,(int)b,(int)c)"]
    three += ["__fns(a,b%32,(int)(c%9)-4)"]
    three += [f"__vib{m}_{k}(a,b,&p)*2+p" for k in ("s32", "u32") for m in ("max", "min")]
    three += [
        f"__vib{m}_{k}(a,b,&p,&q)*4+p*2+q" for k in ("s16x2", "u16x2") for m in ("max", "min")
    ]
    return one + two + three


# A checksum of 3000 results for each call, of numbers that often have parts alike or at their ends.
CHECKSUMS = r"""extern "C" __global__ void checksums(unsigned* o) {
  unsigned h = 2166136261u, s = 123 + blockIdx.x;
  for (int i = 0; i < 3000; i++) {
    unsigned v[3];
    for (int j = 0; j < 3; j++) {
      s = s * 1664525u + 1013904223u;
      v[j] = s ^ (s >> 15);
      if (i % 7 == j) v[j] = v[j] & 0x80ff7f00u;
      if (i % 5 == j) v[j] |= 0xff808000u;
    }
    if (i % 11 == 0) v[1] = v[0];
    unsigned a = v[0], b = v[1], c = v[2], r = 0;
    bool p = 0, q = 0;
    switch (blockIdx.x) { CASES }
    h = (h ^ r) * 16777619u;
  }
  o[blockIdx.x] = h;
}
"""
# What this kernel gave on an H200, compiled by nvcc 13.0 for sm_90.
H200 = """
1a4cfb98 91180397 6ea079ef d382e9d5 908f658e 1235a3eb ba98d023 6a8aa1ce d8b1f26e 7a5e1a51
7be942dc 34f7a9c2 09401111 bc939c18 e005a951 a8229a91 74de92ed d76fbafd ee0182be 426d42cc
7d852050 c57658a7 e50cbc61 b42196e3 f333ae2e a0b2d73e 41d8fa1b 9c707011 fbf1b52d b96dead7
a048bcca 2c305f5e b99e44d0 efb7907a 73bc9776 f4371fc2 4bb3a7da 42d98c3c 9979faf0 df7aa8d2
2b7972e7 b7753118 2425108a 59e8ed4f b9cad272 41e32973 9b7a5397 0135462a d7324de3 808bb56a
cff4cb63 3508df4e d1db2323 e188fca9 5c1b730d 2445f5fe 9a4e532c 26559743 3aa1ee2c 9949e133
2e5901ee 1662899d da34d2d4 599cc7f1 9ca694bc a6ccb60c 645047c2 6dfd1a93 e21b3bd9 6b0a5578
9b3cae70 b043fbf2 8efcf568 a523b472 88497cf9 586c10be 7ab2830d cbae9819 9638ffeb 71163a0d
01ffcc14 1074bd68 6e58dcd8 029d3d84 1a84c390 fc7b5148 96408d05 9feb2ce7 2e21f084 4ba4789d
deaeb233 7a1088a2 a12f6a6f b4ab1782 5284ec45 ee222331 cf430eb7 e9a7e4e2 1e6fa728 f542112a
b2a6b53b e87d2a88 0fc36e4a 39c1f333 b262136d e53851da b3f7c891 0d51aa3f 657e5d3c 668b127d
4df6b843 cb5eb7cf 514db016 c4ba8f58 8189ba66 f83f16ea 2e053a7f fe69d96d f346fe77 9fe2950e
53b3bcb2 c67a84fe 3c7c0e09 7977f3a4 1560a5a3 4cc45104 8e476c09 7a334bb9 cdecfd17 7a938f0d
ce0a4e7d
"""


def test_integer_functions_give_what_an_h200_gives() -> None:
    calls = integer_calls()
    cases = " ".join(f"case {i}: r = {call}; break;" for i, call in enumerate(calls))
    kernel = jge.cuda_kernel(
        CHECKSUMS.replace("CASES", cases),
        "checksums",
        out_shape=jax.ShapeDtypeStruct((len(calls),), np.uint32),
        grid=len(calls),
        block=1,
    )
    got = [f"{value:08x}" for value in np.asarray(kernel())]
    wrong = [c for c, a, b in zip(calls, got, H200.split(), strict=True) if a != b]
    assert not wrong


def run(body: str, out: np.ndarray, *inputs: np.ndarray) -> np.ndarray:
    """Runs a body of one block; x, y and so on are its inputs, and o its output."""
    kinds = {"float64": "double", "int64": "long long"}
    names = dict(zip("xyzw", inputs, strict=False))
    params = [f"const {kinds[array.dtype.name]}* {name}" for name, array in names.items()]
    params.append(f"{kinds[out.dtype.name]}* o")
    text = f'extern "C" __global__ void k({", ".join(params)}) {{ int t = threadIdx.x; {body} }}'
    image = host.compile_shared_object(Source(text, "<k>"), ["k"])
    with loaded(image) as module:
        module.run("k", (1,), (out.shape[0],), *inputs, out)
    return out


# ---- Mathematics ---------------------------------------------------------------------------------


def test_inverses_of_the_error_function() -> None:
    from scipy import special

    tiny = 10.0 ** -np.arange(1, 300, 7)
    y = np.concatenate([np.linspace(0.001, 0.999, 200), tiny, 1 - tiny[:2]])
    body = (
        "double* r = o + 6 * t; double v = x[t]; r[0] = erfinv(v); r[1] = erfinv(-v);"
        "r[2] = erfcinv(v); r[3] = erfcinv(2 - v); r[4] = normcdfinv(v); r[5] = erfcinvf(v);"
    )
    got = run(body, np.zeros((y.size, 6)), y)
    expected = np.stack(
        [
            *(special.erfinv(y), special.erfinv(-y), special.erfcinv(y), special.erfcinv(2 - y)),
            *(special.ndtri(y), special.erfcinv(y.astype(np.float32).astype(float))),
        ],
        1,
    )
    np.testing.assert_allclose(got[:, :5], expected[:, :5], rtol=2e-13)
    large = y > 1e-30
    np.testing.assert_allclose(got[large, 5], expected[large, 5], rtol=1e-6)
    ends = run("o[t] = erfcinv(x[t]);", np.zeros(4), np.array([0.0, 2.0, 1.0, -1.0]))
    np.testing.assert_array_equal(ends, [np.inf, -np.inf, 0, np.nan])


def test_bessel_functions_and_scaled_erfc() -> None:
    from scipy import special

    x = np.concatenate([np.linspace(-40, 600, 300), [0.0, 1e-9]])
    body = "double* r = o + 3 * t; r[0] = cyl_bessel_i0(x[t]); r[1] = cyl_bessel_i1(x[t]);"
    got = run(body + "r[2] = x[t] < 0 ? 0 : erfcx(x[t]);", np.zeros((x.size, 3)), x)
    expected = np.stack([special.i0(x), special.i1(x), np.where(x < 0, 0, special.erfcx(x))], 1)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_norms_and_functions_of_mixed_types() -> None:
    x = np.linspace(-2, 3, 11)
    body = """double* r = o + 8 * t; double v = x[t]; const double three[] = {v, 2, 3}; float s, c;
    r[0] = norm4d(v, 2, 3, 4); r[1] = rnorm4d(v, 2, 3, 4); r[2] = norm(3, three);
    r[3] = rnorm(3, three); sincos(float(v), &s, &c); r[4] = s; r[5] = c;
    r[6] = llmax(3ll, 4ll) + ullmin(5ull, 6ull); sincospi(0.5f, &s, &c); r[7] = s;"""
    got = run(body, np.zeros((11, 8)), x)
    four, three = np.sqrt(x * x + 29), np.sqrt(x * x + 13)
    expected = [four, 1 / four, three, 1 / three, np.sin(x), np.cos(x), 0 * x + 9, 0 * x + 1]
    np.testing.assert_allclose(got, np.stack(expected, 1), rtol=1e-6)


def test_conversions_of_a_given_rounding() -> None:
    x = np.array([2**24 + 1, -(2**24) - 1, 2**53 + 1, -(2**53) - 1, 5, 2**63 - 1], np.int64)
    body = """double* r = o + 6 * t; r[0] = __ll2float_ru(x[t]); r[1] = __ll2float_rd(x[t]);
    r[2] = __ll2float_rz(x[t]); r[3] = __ll2double_ru(x[t]); r[4] = __ll2double_rd(x[t]);
    r[5] = __double2float_ru(0.1 * (t + 1)) >= 0.1 * (t + 1);"""
    got = run(body, np.zeros((6, 6)), x)
    up4 = [2**24 + 2, -(2**24), 2**53 + 2**30, -(2**53), 5, 2**63]
    down4 = [2**24, -(2**24) - 2, 2**53, -(2**53) - 2**30, 5, 2**63 - 2**39]
    zero4 = [2**24, -(2**24), 2**53, -(2**53), 5, 2**63 - 2**39]
    up8 = [2**24 + 1, -(2**24) - 1, 2**53 + 2, -(2**53), 5, 2**63]
    down8 = [2**24 + 1, -(2**24) - 1, 2**53, -(2**53) - 2, 5, 2**63 - 2**10]
    np.testing.assert_array_equal(got.T, np.array([up4, down4, zero4, up8, down8, [1] * 6], float))


# ---- Addresses, targets, hints -------------------------------------------------------------------


def test_address_spaces() -> None:
    kernel = jge.cuda_kernel(
        r"""#include <nv/target>
        __device__ float table[4];
        extern "C" __global__ void k(const float* x, int* o) {
          __shared__ float s[8];
          extern __shared__ float d[];
          float own[2] = {x[0], x[1]};
          const void* all[] = {s + 7, d, own, x, o, table};
          for (int i = 0; i < 6; ++i) {
            o[i] = __isShared(all[i]) + 10 * __isLocal(all[i]) + 100 * __isGlobal(all[i]);
          }
          __builtin_assume(o[0] >= 0);
          __prof_trigger(1);
          o[6] = *(const float*)__cvta_global_to_generic(__cvta_generic_to_global(x + 2)) == 3;
          NV_IF_TARGET(NV_IS_DEVICE, (asm("trap;");), (o[7] = 1;))
          NV_IF_TARGET(NV_IS_HOST, (o[7] += 2; o[7] += 4;))
          NV_DISPATCH_TARGET(NV_PROVIDES_SM_80, (asm("trap;");), NV_ANY_TARGET, (o[7] += 8;))
          s[7] = own[threadIdx.x];
        }""",
        "k",
        out_shape=jax.ShapeDtypeStruct((8,), np.int32),
        grid=1,
        block=1,
        shared_mem=32,
    )
    got = kernel(np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(got, [1, 1, 10, 100, 100, 100, 1, 15])


# ---- What is missing, with a reference -----------------------------------------------------------

MISSING = {
    "cuRAND": ("#include <curand_kernel.h>", "curandState state;"),
    "6-bit floats": ("#include <cuda_fp6.h>", ""),
    "4-bit floats": ("#include <cuda_fp4.h>", "__nv_fp4_e2m1 v;"),
    "cute": ("#include <cute/tensor.hpp>", ""),
    "cutlass": ("#include <cutlass/array.h>", ""),
    "a header of CUDA's": ("#include <cuda_tile.h>", ""),
    "a header of the groups": ("#include <cooperative_groups/details/info.h>", ""),
    "a tile of several warps": (
        "#include <cooperative_groups.h>",
        "__shared__ cooperative_groups::block_tile_memory<4, 128> m;",
    ),
    "a function of the compiler's": ("", "y[0] = __nvvm_read_ptx_sreg_tid_x();"),
    "an address space": ("", "y[0] = __isConstant(x);"),
}


@pytest.mark.parametrize("what", MISSING)
def test_what_is_missing_runs_the_reference(what: str) -> None:
    header, body = MISSING[what]
    text = header + '\nextern "C" __global__ void k(const float* x, float* y) { BODY }\n'
    kernel = jge.cuda_kernel(
        text.replace("BODY", body),
        "k",
        out_shape=lambda x: x,
        grid=1,
        block=1,
        reference=lambda x: 2 * x,
    )
    x = np.ones(1, np.float32)
    with pytest.warns(jge.ReferenceUsedWarning, match="not (?:supported|available) on the CPU"):
        np.testing.assert_array_equal(kernel(x), 2 * x)


def test_a_mistake_of_the_users_runs_no_reference() -> None:
    kernel = jge.cuda_kernel(
        'extern "C" __global__ void k(const float* x, float* y) { y[0] = wrong; }',
        "k",
        out_shape=lambda x: x,
        grid=1,
        block=1,
        reference=lambda x: 2 * x,
    )
    with pytest.raises(jge.KernelCompileError, match="wrong"):
        kernel(np.ones(1, np.float32))

// tests/cuda_on_cpu/halves.cu: arithmetic of __half and __nv_bfloat16.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define KERNEL extern "C" __global__ void

KERNEL half_arithmetic(const __half* x, __half* y) {
  const int t = threadIdx.x, n = blockDim.x;
  const __half a = x[t], b = x[n - 1 - t];
  y[t] = a + b;
  y[n + t] = __hmul(a, b);
  y[2 * n + t] = __hfma(a, b, a);
  y[3 * n + t] = __hsub(a, b) / __float2half(3);
  y[4 * n + t] = a < b ? __hmin(a, b) : __hneg(__hmax(a, b));
  y[5 * n + t] = hsqrt(__habs(a));
}
KERNEL pairs_of_halves(const __half* x, __half* y) {
  const __half2* pairs = reinterpret_cast<const __half2*>(x);
  __half2 v = __hadd2(pairs[threadIdx.x], __float2half2_rn(1));
  v = __hfma2(v, pairs[threadIdx.x], __floats2half2_rn(0.5f, -0.5f));
  reinterpret_cast<__half2*>(y)[threadIdx.x] = __halves2half2(__high2half(v), __low2half(v));
}
KERNEL half_sum_by_shuffle(const __half* x, float* y) {
  __half v = x[threadIdx.x];
  for (int with = 16; with > 0; with /= 2) v = __hadd(v, __shfl_xor_sync(~0u, v, with));
  y[threadIdx.x] = __half2float(v);
}
KERNEL bfloat16_arithmetic(const __nv_bfloat16* x, __nv_bfloat16* y) {
  const int t = threadIdx.x, n = blockDim.x;
  const __nv_bfloat16 a = x[t], b = x[n - 1 - t];
  y[t] = a + b;
  y[n + t] = __hmul(a, b);
  y[2 * n + t] = __hfma(a, b, a);
  y[3 * n + t] = __float2bfloat16(3 * __bfloat162float(a));
}
KERNEL pairs_of_bfloat16(const __nv_bfloat16* x, float* y) {
  __shared__ __nv_bfloat162 s[32];
  s[threadIdx.x] = reinterpret_cast<const __nv_bfloat162*>(x)[threadIdx.x];
  __syncthreads();
  const __nv_bfloat162 v = __hmul2(s[31 - threadIdx.x], s[threadIdx.x]);
  y[threadIdx.x] = __low2float(v) + __high2float(v);
}

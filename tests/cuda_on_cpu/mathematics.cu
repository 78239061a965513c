// tests/cuda_on_cpu/mathematics.cu: intrinsics and functions beyond <math.h>.
#define KERNEL extern "C" __global__ void

KERNEL fast_functions(const float* x, float* y) {
  const int t = threadIdx.x, n = blockDim.x;
  const float v = x[t];
  y[t] = __expf(v);
  y[n + t] = __logf(v);
  y[2 * n + t] = __sinf(v) + __cosf(v);
  y[3 * n + t] = __powf(v, 1.5f);
  y[4 * n + t] = __fdividef(v, 3);
  y[5 * n + t] = __saturatef(v);
  y[6 * n + t] = __frsqrt_rn(v);
  y[7 * n + t] = exp2f(v) + log2f(v) + exp10f(v) + log10f(v);
}
KERNEL exact_functions(const float* x, float* y) {
  const int t = threadIdx.x, n = blockDim.x;
  const float v = x[t];
  y[t] = rsqrtf(v) + rcbrtf(v);
  y[n + t] = fmaf(v, v, 1) + __fmaf_rn(v, 2, v);
  y[2 * n + t] = sinpif(v) + cospif(v);
  y[3 * n + t] = erff(v) + normcdff(v) + tgammaf(v);
  y[4 * n + t] = hypotf(v, 2) + norm3df(v, v, v) + rhypotf(v, 1);
  y[5 * n + t] = fminf(v, 1) + fmaxf(v, 2) + min(v, 1) + max(2, v) + fabsf(-v);
  y[6 * n + t] = truncf(v) + rintf(v) + floorf(v) + ceilf(v) + fmodf(v, 0.7f);
  y[7 * n + t] = ldexpf(v, 3) + copysignf(v, -1) + (isfinite(v) ? 1 : 0);
}
KERNEL counting_bits(const int* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x;
  y[t] = __popc(x[t]);
  y[n + t] = __clz(x[t]);
  y[2 * n + t] = __brev(x[t]);
  y[3 * n + t] = __ffs(x[t]);
  y[4 * n + t] = __popcll((unsigned long long)x[t] << 20);
  y[5 * n + t] = __clzll(x[t]);
}
KERNEL integers(const int* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x;
  y[t] = __mulhi(x[t], 1 << 20);
  y[n + t] = __umulhi(x[t], 1u << 31);
  y[2 * n + t] = __funnelshift_l(x[t], x[t], 5);
  y[3 * n + t] = __byte_perm(x[t], 0, 0x0123);
  y[4 * n + t] = __sad(x[t], 7, 1);
  y[5 * n + t] = __mul24(x[t] & 0xfff, 3);
}
KERNEL conversions(const float* x, int* y) {
  const int t = threadIdx.x, n = blockDim.x;
  y[t] = __float2int_rn(x[t]);
  y[n + t] = __float2int_rz(x[t]);
  y[2 * n + t] = __float2int_rd(x[t]);
  y[3 * n + t] = __float2int_ru(x[t]);
  y[4 * n + t] = __float_as_int(x[t]);
  y[5 * n + t] = __float2int_rz(1e20f * x[t]);
}
KERNEL double_precision(const double* x, double* y) {
  const int t = threadIdx.x, n = blockDim.x;
  y[t] = rsqrt(x[t]) + fma(x[t], x[t], 1.0);
  y[n + t] = sinpi(x[t]) + erf(x[t]) + __longlong_as_double(__double_as_longlong(x[t]));
  y[2 * n + t] = exp(x[t]) + log1p(x[t]) + cbrt(x[t]) + pow(x[t], 0.3);
}

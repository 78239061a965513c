// tests/cuda_on_cpu/memory.cu: loads, stores, vector types, constants and globals.
#define KERNEL extern "C" __global__ void

__constant__ float coefficients[3] = {0.25f, 0.5f, 0.25f};
__device__ const int offsets[] = {-1, 0, 1};

KERNEL read_only_loads(const float* __restrict__ x, float* __restrict__ y, int n) {
  const int i = threadIdx.x;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 3; ++k) sum += coefficients[k] * __ldg(&x[(i + offsets[k] + n) % n]);
  y[i] = sum;
}
KERNEL cache_hints(const float* x, float* y) {
  const int i = threadIdx.x;
  __stcs(&y[i], __ldcs(&x[i]) + __ldcg(&x[i]) + __ldca(&x[i]));
}
KERNEL vectors_of_four(const float* x, float* y) {
  const float4 v = reinterpret_cast<const float4*>(x)[threadIdx.x];
  reinterpret_cast<float4*>(y)[threadIdx.x] = make_float4(v.w, v.z, v.y, v.x);
}
KERNEL vectors_of_two(const double* x, double* y) {
  double2 v = __ldg(reinterpret_cast<const double2*>(x) + threadIdx.x);
  v.x += v.y;
  reinterpret_cast<double2*>(y)[threadIdx.x] = make_double2(v.x, v.y);
}
KERNEL vectors_of_bytes(const unsigned char* x, unsigned char* y) {
  uchar4 v = reinterpret_cast<const uchar4*>(x)[threadIdx.x];
  v.x = 255 - v.x;
  v.w = v.y / 2;
  reinterpret_cast<uchar4*>(y)[threadIdx.x] = v;
}
KERNEL vectors_of_three(const float* x, float* y) {
  const float3 v = reinterpret_cast<const float3*>(x)[threadIdx.x];
  y[threadIdx.x] = v.x * v.x + v.y * v.y + v.z * v.z;
}
KERNEL local_array(const float* x, float* y) {
  float window[5];
  for (int k = 0; k < 5; ++k) window[k] = x[threadIdx.x + k];
  for (int i = 1; i < 5; ++i) {
    for (int j = i; j > 0 && window[j] < window[j - 1]; --j) {
      const float v = window[j];
      window[j] = window[j - 1];
      window[j - 1] = v;
    }
  }
  y[threadIdx.x] = window[2];
}
KERNEL grid_stride(const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    y[i] = 2 * x[i];
  }
}

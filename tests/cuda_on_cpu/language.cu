// tests/cuda_on_cpu/language.cu: what of C++ kernels use.
#include <assert.h>
#include <stdio.h>
#define KERNEL extern "C" __global__ void

template <class T, class F>
__device__ void apply(const T* x, T* y, F f) {
  y[threadIdx.x] = f(x[threadIdx.x]);
}
KERNEL lambda(const float* x, float* y, int n) {
  apply(x, y, [n] __device__(float v) { return n * v; });
}
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
KERNEL recursion(int* y) { y[threadIdx.x] = fibonacci(threadIdx.x); }

struct Complex {
  float re, im;
  __host__ __device__ Complex operator*(Complex o) const {
    return {re * o.re - im * o.im, re * o.im + im * o.re};
  }
};
KERNEL struct_with_operators(const float* x, float* y) {
  const Complex z = reinterpret_cast<const Complex*>(x)[threadIdx.x];
  reinterpret_cast<Complex*>(y)[threadIdx.x] = z * z;
}

__device__ float twice(float v) { return 2 * v; }
__device__ float thrice(float v) { return 3 * v; }
KERNEL function_pointers(const float* x, float* y) {
  float (*const functions[])(float) = {twice, thrice};
  y[threadIdx.x] = functions[threadIdx.x % 2](x[threadIdx.x]);
}
template <int N>
struct Power {
  static __device__ float of(float v) { return v * Power<N - 1>::of(v); }
};
template <>
struct Power<0> {
  static __device__ float of(float) { return 1; }
};
KERNEL template_recursion(const float* x, float* y) {
  y[threadIdx.x] = Power<3>::of(x[threadIdx.x]);
}

KERNEL __launch_bounds__(64, 2) assertion_that_holds(const float* x, float* y) {
  assert(x[threadIdx.x] > -100);
  y[threadIdx.x] = x[threadIdx.x];
}
KERNEL prints(int* y) {
  if (threadIdx.x == 2) printf("thread %d of %s\n", threadIdx.x, "prints");
  __syncthreads();
  y[threadIdx.x] = threadIdx.x;
}

// tests/cuda_on_cpu/shared.cu: static and dynamic shared memory, however it is declared.
#define KERNEL extern "C" __global__ void

__shared__ float of_the_file[64];
extern __shared__ float4 dynamic_of_the_file[];

__device__ float* static_in_a_function() {
  static __shared__ float s[64];
  return s;
}
template <class T, int N>
__device__ T* in_a_template() {
  __shared__ T s[N];
  return s;
}

KERNEL static_kinds(const float* x, float* y) {
  volatile __shared__ float v[64];
  __shared__ __align__(16) struct {
    float value;
    double other;
  } pairs[64];
  float* f = static_in_a_function();
  double* d = in_a_template<double, 64>();
  const int t = threadIdx.x, other = 63 - t;
  of_the_file[t] = x[t];
  v[t] = 2 * x[t];
  pairs[t].value = 3 * x[t];
  pairs[t].other = 4 * x[t];
  f[t] = 5 * x[t];
  d[t] = 6 * x[t];
  __syncthreads();
  y[t] = of_the_file[other] + v[other] + pairs[other].value + float(pairs[other].other) + f[other] +
         float(d[other]);
}

KERNEL two_functions_two_arrays(float* y) {
  float* a = in_a_template<float, 32>();
  float* b = in_a_template<float, 33>();
  a[threadIdx.x] = 1;
  b[threadIdx.x] = 2;
  __syncthreads();
  y[threadIdx.x] = a[31 - threadIdx.x] + 10 * b[31 - threadIdx.x];
}

KERNEL dynamic_floats(const float* x, float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

KERNEL dynamic_carved_up(const float* x, const int* k, float* y) {
  extern __shared__ __align__(16) unsigned char raw[];
  float* values = reinterpret_cast<float*>(raw);
  int* places = (int*)(values + blockDim.x);
  values[threadIdx.x] = x[threadIdx.x];
  places[k[threadIdx.x]] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = values[places[threadIdx.x]];
}

KERNEL dynamic_outside(const float* x, float* y) {
  float* s = reinterpret_cast<float*>(dynamic_of_the_file);
  if (threadIdx.x < 8) dynamic_of_the_file[threadIdx.x] = ((const float4*)x)[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[31 - threadIdx.x] + dynamic_of_the_file[1].y;
}

KERNEL dynamic_rows(const float* x, float* y) {
  extern volatile __shared__ float rows[][4];
  rows[threadIdx.x / 4][threadIdx.x % 4] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = rows[threadIdx.x % 4][threadIdx.x / 4];
}

template <class T>
__device__ T* dynamic_of_a_type() {
  extern __shared__ char bytes[];
  return reinterpret_cast<T*>(bytes);
}
template <class T>
__device__ void rotate(const T* x, T* y) {
  T* s = dynamic_of_a_type<T>();
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[(threadIdx.x + 1) % blockDim.x];
}
KERNEL dynamic_in_a_template(const double* x, double* y) { rotate(x, y); }

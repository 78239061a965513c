// tests/cpp/kernels.cu: the kernels of the C++ tests, for nvcc and for the host driver.
#ifdef __CUDACC__
#define EXPORT extern "C" __global__
#else
#include "host_kernels.h"
#define EXPORT extern "C"
#endif

// A parameter with padding inside and behind.
struct Pair {
  char tag;
  double weight;
};

// Pointers that a program gives their addresses.
struct Arrays {
  int n;
  const float* x;
  float* out;
};

EXPORT void fill(float* out, float value, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}

EXPORT void axpy(const float* x, const float* y, float* out, float a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}

EXPORT void add_one(float* data, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] += 1.0f;
}

// Two of these in another order give another number.
EXPORT void affine(float* data, float scale, float shift, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) data[i] = scale * data[i] + shift;
}

EXPORT void pack(float* out, char c, double d, Pair pair, short s, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = float(c + d + pair.tag + pair.weight + s);
}

EXPORT void scaled(float a, Arrays arrays, float b) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < arrays.n) arrays.out[i] = a * arrays.x[i] + b;
}

// Writes its place in the grid, so that a launch of any shape can be checked.
EXPORT void place(int* out) {
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int index = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[index] = index;
}

EXPORT void nothing() {}

#ifndef __CUDACC__
// Fails as a device assertion would.
EXPORT void fail(int code) {
  if (code != 0) failure = "assertion `code == 0' failed";
}

// Fails once the flag is up.
EXPORT void fail_later(const int* flag) {
  while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE)) {
  }
  failure = "the flag is up";
}

static const JgeHostKernel kernels[] = {
    describe<&fill>("fill"),       describe<&axpy>("axpy"), describe<&add_one>("add_one"),
    describe<&affine>("affine"),   describe<&pack>("pack"), describe<&place>("place"),
    describe<&nothing>("nothing"), describe<&fail>("fail"), describe<&fail_later>("fail_later"),
    describe<&scaled>("scaled"),
};
extern "C" __attribute__((visibility("default"))) const JgeHostImage jge_host_image;
const JgeHostImage jge_host_image = {JGE_HOST_IMAGE_ABI, sizeof kernels / sizeof kernels[0],
                                     kernels, 0};
#endif

// examples/heat.cu: a program of its own, as nvcc compiles it. existing_file.py takes its kernel.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                       \
  do {                                                    \
    cudaError_t error = (call);                           \
    if (error != cudaSuccess) {                           \
      fprintf(stderr, "%s\n", cudaGetErrorString(error)); \
      exit(1);                                            \
    }                                                     \
  } while (0)

struct Grid {
  int width, height;
};

// u is read by all neighbours, so the new temperatures go elsewhere.
__global__ void heat_step(const float* u, float* out, Grid grid, float rate = 0.1f) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= grid.width || y >= grid.height) return;
  int i = y * grid.width + x;
  bool rim = x == 0 || y == 0 || x == grid.width - 1 || y == grid.height - 1;
  out[i] =
      rim ? u[i]
          : u[i] + rate * (u[i - 1] + u[i + 1] + u[i - grid.width] + u[i + grid.width] - 4 * u[i]);
}

static void run(float* u, float* next, Grid grid, int steps) {
  dim3 block(16, 16), blocks((grid.width + 15) / 16, (grid.height + 15) / 16);
  for (int i = 0; i < steps; ++i) {
    heat_step<<<blocks, block>>>(u, next, grid);
    std::swap(u, next);
  }
  CHECK(cudaDeviceSynchronize());
}

int main(int argc, char** argv) {
  Grid grid = {argc > 1 ? atoi(argv[1]) : 512, argc > 2 ? atoi(argv[2]) : 512};
  std::vector<float> u(grid.width * grid.height);
  u[grid.width * (grid.height / 2) + grid.width / 2] = 1000;
  float *a, *b;
  CHECK(cudaMalloc(&a, u.size() * sizeof(float)));
  CHECK(cudaMalloc(&b, u.size() * sizeof(float)));
  CHECK(cudaMemcpy(a, u.data(), u.size() * sizeof(float), cudaMemcpyHostToDevice));
  run(a, b, grid, 100);
  CHECK(cudaMemcpy(u.data(), a, u.size() * sizeof(float), cudaMemcpyDeviceToHost));
  printf("%g\n", u[grid.width * (grid.height / 2) + grid.width / 2]);
  return 0;
}

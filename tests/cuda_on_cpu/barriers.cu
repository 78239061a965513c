// tests/cuda_on_cpu/barriers.cu: __syncthreads and its kin.
#define KERNEL extern "C" __global__ void

__device__ int here() { return blockIdx.x * blockDim.x + threadIdx.x; }

KERNEL reverse_block(const float* x, float* y) {
  __shared__ float s[128];
  s[threadIdx.x] = x[here()];
  __syncthreads();
  y[here()] = s[blockDim.x - 1 - threadIdx.x];
}

// Of each block: how many are positive, whether all are, whether one is.
KERNEL block_votes(const float* x, int* y) {
  const int positive = x[here()] > 0;
  const int count = __syncthreads_count(positive);
  const int all = __syncthreads_and(positive);
  const int any = __syncthreads_or(positive);
  if (threadIdx.x == 0) {
    y[3 * blockIdx.x] = count;
    y[3 * blockIdx.x + 1] = all;
    y[3 * blockIdx.x + 2] = any;
  }
}

// Threads that have left the kernel are not waited for.
KERNEL early_return(const float* x, float* y, int n) {
  __shared__ float s[128];
  if (threadIdx.x >= n) return;
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[n - 1 - threadIdx.x];
}

KERNEL prefix_sum(const float* x, float* y) {
  __shared__ float s[100];
  const int t = threadIdx.x;
  s[t] = x[here()];
  for (int by = 1; by < blockDim.x; by *= 2) {
    __syncthreads();
    const float left = t >= by ? s[t - by] : 0;
    __syncthreads();
    s[t] += left;
  }
  y[here()] = s[t];
}

__device__ __noinline__ float sum_of_block(float value, float* s) {
  s[threadIdx.x] = value;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
  }
  __syncthreads();
  return s[0];
}
KERNEL barrier_in_a_function(const float* x, float* y) {
  __shared__ float s[64];
  y[here()] = x[here()] / sum_of_block(x[here()], s);
}

KERNEL transpose(const float* x, float* y, int n) {
  __shared__ float tile[32][33];
  for (int r = threadIdx.y; r < 32; r += blockDim.y) {
    tile[r][threadIdx.x] = x[(blockIdx.y * 32 + r) * n + blockIdx.x * 32 + threadIdx.x];
  }
  __syncthreads();
  for (int r = threadIdx.y; r < 32; r += blockDim.y) {
    y[(blockIdx.x * 32 + r) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][r];
  }
}

KERNEL three_dimensions(int* y) {
  __shared__ int s[24];
  const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  s[t] = 24 * b + t;
  __syncthreads();
  y[24 * b + t] = s[23 - t];
}

// Only some blocks wait, and only once in a while.
KERNEL some_blocks(const float* x, float* y) {
  __shared__ float s[32];
  float v = x[here()];
  for (int k = 0; k < blockIdx.x % 3; ++k) {
    s[threadIdx.x] = v;
    __syncthreads();
    v += s[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
  }
  y[here()] = v;
}

KERNEL matrix_product(const float* a, const float* b, float* c, int n) {
  __shared__ float as[8][8], bs[8][8];
  const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 8 + x, row = blockIdx.y * 8 + y;
  float sum = 0;
  for (int k = 0; k < n; k += 8) {
    as[y][x] = a[row * n + k + x];
    bs[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (int j = 0; j < 8; ++j) sum += as[y][j] * bs[j][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

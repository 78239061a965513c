// tests/cpp/host_kernels.h: the little of CUDA that kernels.cu needs to be a host kernel image.
#pragma once

#include <stdio.h>

#include <typeinfo>
#include <utility>

#include "host_image.h"

#define __global__

struct Dim3 {
  unsigned x, y, z;
};
static thread_local Dim3 threadIdx, blockIdx, blockDim, gridDim;
static thread_local const char* failure;  // what a kernel says went wrong

template <class... P>
struct Params {
  static constexpr unsigned count = sizeof...(P);
  JgeHostParam list[sizeof...(P) > 0 ? sizeof...(P) : 1] = {};
  constexpr explicit Params(void (*)(P...)) {
    unsigned i = 0, offset = 0;
    ((offset = (offset + alignof(P) - 1) / alignof(P) * alignof(P),
      list[i++] = {offset, unsigned(sizeof(P))}, offset += sizeof(P)),
     ...);
  }
  template <size_t... I>
  static void call(void (*kernel)(P...), void* const* params, std::index_sequence<I...>) {
    kernel(*static_cast<P*>(params[I])...);
  }
};

template <auto kernel>
int32_t launch(const JgeHostLaunch* launch) {
  using Signature = decltype(Params(kernel));
  gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]};
  blockDim = {launch->block[0], launch->block[1], launch->block[2]};
  failure = nullptr;
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
        for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z)
          for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x)
              Signature::call(kernel, launch->params, std::make_index_sequence<Signature::count>());
  if (!failure) return 0;
  snprintf(launch->message, launch->message_size, "%s", failure);
  return 710;  // CUDA_ERROR_ASSERT
}

template <auto kernel>
constexpr Params kParams(kernel);

template <auto kernel>
JgeHostKernel describe(const char* name) {
  return {name,    typeid(kernel).name(),           launch<kernel>,
          nullptr, decltype(Params(kernel))::count, kParams<kernel>.list};
}

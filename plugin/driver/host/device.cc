// plugin/driver/host/device.cc: the software driver's devices and contexts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "driver/host/limits.h"
#include "driver/host/state.h"

namespace jge::host {

Context& current_context() {
  require(thread_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  return *thread_context;
}

namespace api {
namespace {

// Those that are not 0.
constexpr std::pair<CUdevice_attribute, int> kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kMaxThreads},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, kMaxBlock[0]},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, kMaxBlock[1]},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, kMaxBlock[2]},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, kMaxGrid[0]},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, kMaxGrid[1]},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, kMaxGrid[2]},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, kMaxSharedBytes},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, kMaxSharedBytesOptIn},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, kMultiprocessorSharedBytes},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, kSharedBytesReserved},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, kMultiprocessorThreads},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, kMultiprocessorBlocks},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 1},
};

void require_device(CUdevice device) {
  require(device >= 0 && device < kMaxDevices, CUDA_ERROR_INVALID_DEVICE);
}

std::size_t pages(int name) {
  return static_cast<std::size_t>(std::max(sysconf(name), 0L)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

CUresult cuInit(unsigned flags) {
  require(flags == 0);
  state().initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  require(version);
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  require(count);
  *count = kMaxDevices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  require(device);
  require_device(ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  require(name && length > 0);
  require_device(device);
  std::snprintf(name, static_cast<std::size_t>(length), "host CPU (%u threads)",
                std::thread::hardware_concurrency());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  require(value && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX);
  require_device(device);
  const auto* known = std::find_if(std::begin(kAttributes), std::end(kAttributes),
                                   [&](const auto& pair) { return pair.first == attribute; });
  *value = known == std::end(kAttributes) ? 0 : known->second;
  if (attribute == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) {
    *value = static_cast<int>(std::max(sysconf(_SC_LEVEL2_CACHE_SIZE), 0L));
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  require(bytes);
  require_device(device);
  *bytes = pages(_SC_PHYS_PAGES);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  current_context();
  require(free && total);
  *free = pages(_SC_AVPHYS_PAGES);
  *total = pages(_SC_PHYS_PAGES);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  require(context);
  require_device(device);
  auto& slot = state().contexts[static_cast<std::size_t>(device)];
  if (!slot) {
    slot = std::make_unique<Context>();
    slot->device = device;
    slot->legacy = std::make_unique<Stream>();
    slot->legacy->context = slot.get();
    slot->legacy->blocking = true;
    slot->legacy->id = state().next_id++;
  }
  ++slot->retained;
  *context = reinterpret_cast<CUcontext>(slot.get());
  return CUDA_SUCCESS;
}

// Unlike CUDA's, the last release destroys nothing: what was made in the context stays usable.
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  require_device(device);
  auto& slot = state().contexts[static_cast<std::size_t>(device)];
  require(slot && slot->retained > 0, CUDA_ERROR_INVALID_CONTEXT);
  --slot->retained;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  require(context);
  *context = reinterpret_cast<CUcontext>(thread_context);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  thread_context = context ? &get<Context>(context) : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  require(device);
  *device = current_context().device;
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace jge::host

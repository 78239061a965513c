// plugin/driver/host_device.cc: the software driver's devices, contexts and error texts.
#include <unistd.h>

#include <cstdio>
#include <iterator>
#include <utility>

#include "driver/host_state.h"

namespace jge::host {

Context& current_context() {
  require(thread_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  return *thread_context;
}

namespace api {
namespace {

struct ErrorText {
  CUresult result;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
#define JGE_ERROR(name, text) {name, #name, text}
    JGE_ERROR(CUDA_SUCCESS, "no error"),
    JGE_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    JGE_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    JGE_ERROR(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called"),
    JGE_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    JGE_ERROR(CUDA_ERROR_STUB_LIBRARY, "the driver library is a stub"),
    JGE_ERROR(CUDA_ERROR_NO_DEVICE, "no device"),
    JGE_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    JGE_ERROR(CUDA_ERROR_INVALID_IMAGE, "kernel image is invalid"),
    JGE_ERROR(CUDA_ERROR_INVALID_CONTEXT, "no context is current, or it is invalid"),
    JGE_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image for this device"),
    JGE_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable memory error"),
    JGE_ERROR(CUDA_ERROR_INVALID_PTX, "PTX is invalid"),
    JGE_ERROR(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "PTX is newer than the driver"),
    JGE_ERROR(CUDA_ERROR_INVALID_SOURCE, "kernel source is invalid"),
    JGE_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    JGE_ERROR(CUDA_ERROR_OPERATING_SYSTEM, "the operating system refused"),
    JGE_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid handle"),
    JGE_ERROR(CUDA_ERROR_ILLEGAL_STATE, "not possible in this state"),
    JGE_ERROR(CUDA_ERROR_LOSSY_QUERY, "the query would lose information"),
    JGE_ERROR(CUDA_ERROR_NOT_FOUND, "name not found"),
    JGE_ERROR(CUDA_ERROR_NOT_READY, "not ready"),
    JGE_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "illegal memory access by a kernel"),
    JGE_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources asked for by a launch"),
    JGE_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT, "kernel timed out"),
    JGE_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context is destroyed"),
    JGE_ERROR(CUDA_ERROR_ASSERT, "assertion in a kernel failed"),
    JGE_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction in a kernel"),
    JGE_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned memory access by a kernel"),
    JGE_ERROR(CUDA_ERROR_LAUNCH_FAILED, "kernel failed"),
    JGE_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "cooperative launch too large"),
    JGE_ERROR(CUDA_ERROR_NOT_PERMITTED, "not permitted"),
    JGE_ERROR(CUDA_ERROR_NOT_SUPPORTED, "not supported"),
    JGE_ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "the system is not ready"),
    JGE_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "driver versions do not match"),
    JGE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted while a stream is captured"),
    JGE_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier error invalidated the capture"),
    JGE_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "would merge two captures"),
    JGE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began in another stream"),
    JGE_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream of the capture was not joined"),
    JGE_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a captured stream depends on outer work"),
    JGE_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "depends on a captured stream implicitly"),
    JGE_ERROR(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a captured stream"),
    JGE_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture began in another thread"),
    JGE_ERROR(CUDA_ERROR_TIMEOUT, "timed out"),
    JGE_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the executable graph cannot be updated so"),
    JGE_ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE, "invalid cluster size"),
    JGE_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef JGE_ERROR
};

// Those that are not 0. The limits of a launch are a GPU's, so that programs for one fit here.
constexpr std::pair<CUdevice_attribute, int> kAttributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 * 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 * 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 * 1024},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 1},
};

const ErrorText* find_error(CUresult result) {
  for (const ErrorText& error : kErrors) {
    if (error.result == result) return &error;
  }
  return nullptr;
}

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

CUresult cuGetErrorName(CUresult result, const char** name) {
  require(name);
  const ErrorText* error = find_error(result);
  *name = error ? error->name : nullptr;
  return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult result, const char** text) {
  require(text);
  const ErrorText* error = find_error(result);
  *text = error ? error->text : nullptr;
  return error ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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

// plugin/core/base/error.cc: the one exception of the core, and the check of every driver call.
#include "core/base/error.h"

#include <cstring>

namespace jge {

std::string describe(const Driver& driver, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &text);
  std::string out = name ? name : "CUresult " + std::to_string(static_cast<int>(result));
  if (text) out += std::string(" (") + text + ")";
  return out;
}

std::string take_fault(const Driver& driver) { return driver.fault ? driver.fault() : ""; }

bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
      return true;
    default:
      return false;
  }
}

std::string explain_sticky(CUresult result) {
  if (!is_sticky(result)) return "";
  return ". Work queued before it failed, here or elsewhere in the process, and the device's "
         "context is lost; to find the kernel, run again with JAX_GRAPHENC_DEBUG=1 or under "
         "compute-sanitizer";
}

namespace {

// What else to say where a capture forbade a call, or was ended by another thread's.
std::string explain_capture(CUresult result) {
  const bool captured =
      result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_CAPTURED_EVENT;
  return captured ? std::string("; ") + kOutOfCaptures : "";
}

}  // namespace

Code code_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return Code::resource_exhausted;
    case CUDA_ERROR_NOT_FOUND:
      return Code::not_found;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_CLUSTER_SIZE:
    case CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
      return Code::invalid_argument;
    default:
      return Code::internal;
  }
}

void throw_driver_error(const Driver& driver, CUresult result, const char* call,
                        const std::source_location& where) {
  const char* file = std::strrchr(where.file_name(), '/');
  // Arguments of our own making are no fault of the caller's.
  const Code code = code_of(result) == Code::invalid_argument ? Code::internal : code_of(result);
  throw Error(code,
              std::string(call) + " failed: " + describe(driver, result) + " [" + driver.name +
                  " driver, " + (file ? file + 1 : where.file_name()) + ":" +
                  std::to_string(where.line()) + "]" + explain_sticky(result) +
                  explain_capture(result),
              result);
}

}  // namespace jge

// plugin/driver/host/errors.cc: names and texts of the driver's results.
#include "driver/host/state.h"

namespace jge::host::api {
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

const ErrorText* find_error(CUresult result) {
  for (const ErrorText& error : kErrors) {
    if (error.result == result) return &error;
  }
  return nullptr;
}

}  // namespace

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

}  // namespace jge::host::api

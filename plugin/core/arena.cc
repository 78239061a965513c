// plugin/core/arena.cc: device memory that stays in its place from run to run.
#include "core/arena.h"

#include <bit>

#include "core/error.h"

namespace jge {

void* Arena::at_least(const Driver& driver, CUstream stream, std::uint64_t bytes) {
  if (bytes >= refused_) return nullptr;
  if (bytes > bytes_) {
    const RelaxedCaptureScope relaxed(driver);
    if (memory_) {
      JGE_CALL(driver, cuStreamSynchronize, stream);
      memory_.reset();
      bytes_ = 0;
    }
    // In steps, since each new place costs every program of the stream its patches.
    const std::uint64_t wanted = std::bit_ceil(bytes);
    CUdeviceptr made = 0;
    if (driver.cuMemAlloc(&made, wanted) != CUDA_SUCCESS) {
      refused_ = bytes;
      return nullptr;
    }
    memory_ = DeviceMemory(driver, made);
    bytes_ = wanted;
  }
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(memory_.get()));
}

}  // namespace jge

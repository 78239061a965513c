// plugin/core/device/arena.cc: device memory that stays in its place from run to run.
#include "core/device/arena.h"

#include <bit>

namespace jge {

void* Arena::at_least(const Driver& driver, std::uint64_t bytes) {
  if (bytes == 0 || bytes >= refused_) return nullptr;
  const auto address = [](const Block& block) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(block.memory.get()));
  };
  for (const Block& block : blocks_) {
    if (bytes <= block.bytes) return address(block);
  }
  const RelaxedCaptureScope relaxed(driver);
  const std::uint64_t wanted = std::bit_ceil(bytes);
  CUdeviceptr made = 0;
  if (driver.cuMemAlloc(&made, wanted) != CUDA_SUCCESS) {
    refused_ = bytes;
    return nullptr;
  }
  return address(blocks_.emplace_back(DeviceMemory(driver, made), wanted));
}

void Arena::note_use(const Driver& driver, CUstream stream) {
  CUevent event = used_.get();
  if (!event) {
    if (driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return;
    used_ = Event(driver, event);
  }
  if (driver.cuEventRecord(event, stream) != CUDA_SUCCESS) used_.reset();
}

bool Arena::is_free(const Driver& driver) const {
  if (!used_) return false;
  const RelaxedCaptureScope relaxed(driver);
  return driver.cuEventQuery(used_.get()) == CUDA_SUCCESS;
}

}  // namespace jge

// plugin/driver/cuda_driver.h: the NVIDIA driver, found at first use.
#pragma once

#include <string>

#include "driver/driver.h"

namespace jge {

// The table of this machine's NVIDIA driver, or the reason why there is none.
struct CudaDriver {
  const Driver* table = nullptr;  // null where no driver can be used
  std::string why_not;            // a sentence, when `table` is null
};

// Opens libcuda.so.1 and calls cuInit at the first call, from any thread; never at import.
const CudaDriver& cuda_driver();

// Whether cuda_driver() has been called, here or in a process that this one was forked from.
bool cuda_driver_was_opened();

// Whether such a process did: CUDA cannot be used here then.
bool cuda_driver_is_a_parents();

}  // namespace jge

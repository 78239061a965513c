// plugin/core/device/limits.h: what a function takes of a device, and whether a launch fits.
#pragma once

#include <cstddef>
#include <string>

#include "core/device/device_info.h"
#include "core/nodes/kernel.h"
#include "driver/driver.h"

namespace jge {

// What a function takes of a device: what limits its occupancy.
struct FunctionAttributes {
  int registers = 0;       // of each thread
  int local_bytes = 0;     // of each thread: spilled registers, and arrays that are indexed
  int shared_bytes = 0;    // of each block, static
  int constant_bytes = 0;  // of the module
  int max_threads = 0;     // of a block
};
FunctionAttributes attributes_of(const Driver& driver, CUfunction function);

// How many blocks run on a multiprocessor at the same time; 0 if not one fits. Opts in to the
// shared memory.
int active_blocks(const Driver& driver, const DeviceInfo& device, CUfunction function, int threads,
                  std::size_t shared_bytes);

// Checks a node's launch against the function's and the device's limits and opts in to the dynamic
// shared memory it asks for. Throws Error (invalid_argument) with the limit that is exceeded.
void prepare_launch(const Driver& driver, const DeviceInfo& device, CUfunction function,
                    const std::string& label, const KernelNode& node);

}  // namespace jge

// plugin/core/device/image.h: a kernel image loaded on one device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/handle.h"
#include "core/device/device_info.h"
#include "core/nodes/kernel.h"
#include "core/program/image_bytes.h"

namespace jge {

// A module and its functions. Its context must be current wherever it is used.
class Image {
 public:
  // Throws Error (invalid_argument) if the image does not fit the device.
  Image(const Driver& driver, std::shared_ptr<const ImageBytes> bytes);

  // The function of a kernel, with the kernel's parameters checked against the image. Throws Error:
  // not_found (listing what is there), invalid_argument (parameters differ).
  CUfunction function(const Kernel& kernel) const;

  // The function of a name, as the image has it. Throws Error (not_found) as above.
  CUfunction function(const std::string& symbol) const;

 private:
  std::vector<std::string> names() const;

  const Driver& driver_;
  std::shared_ptr<const ImageBytes> bytes_;
  Module module_;
};

// What a function takes of a device, for those who look for what limits it.
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

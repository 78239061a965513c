// plugin/core/image.h: a kernel image loaded on one device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/device_info.h"
#include "core/handle.h"
#include "core/program.h"

namespace jge {

// A module and its functions. Its context must be current wherever it is used.
class Image {
 public:
  // Throws Error (invalid_argument) if the image does not fit the device.
  Image(const Driver& driver, std::shared_ptr<const ImageBytes> bytes);

  // The function of a kernel, with the kernel's parameters checked against the image. Throws Error:
  // not_found (listing what is there), invalid_argument (parameters differ).
  CUfunction function(const Kernel& kernel) const;

 private:
  std::vector<std::string> names() const;

  const Driver& driver_;
  std::shared_ptr<const ImageBytes> bytes_;
  Module module_;
};

// Checks a node's launch against the function's and the device's limits and opts in to the dynamic
// shared memory it asks for. Throws Error (invalid_argument) with the limit that is exceeded.
void prepare_launch(const Driver& driver, const DeviceInfo& device, CUfunction function,
                    const std::string& label, const KernelNode& node);

}  // namespace jge

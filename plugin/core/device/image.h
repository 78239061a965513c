// plugin/core/device/image.h: a kernel image loaded on one device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/handle.h"
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

}  // namespace jge

// plugin/core/program/image_bytes.h: the bytes of a kernel image, one copy per process.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace jge {

// A cubin, PTX, fatbin or shared object. NUL-terminated one past its end, as PTX must be.
class ImageBytes {
 public:
  explicit ImageBytes(std::string_view bytes);
  std::string_view view() const { return bytes_; }
  // Whether its kernels may write variables of it.
  bool has_variables() const { return has_variables_; }

 private:
  std::string bytes_;
  bool has_variables_;
};

// The process's copy of these bytes: equal bytes give the same object while one is held, so
// that retracing a function neither copies nor reloads its images. Throws Error (invalid_argument)
// for bytes that are no image or that end early, because a driver trusts their headers.
std::shared_ptr<const ImageBytes> intern_image(std::string_view bytes);

}  // namespace jge

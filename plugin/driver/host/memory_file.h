// plugin/driver/host/memory_file.h: bytes as a file that is on no disk.
#pragma once

#include <string_view>

namespace jge::host {

// Closed with its scope.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Its descriptor; negative where it could not be made, with the reason in errno.
  int number() const { return number_; }

 private:
  int number_ = -1;
};

}  // namespace jge::host

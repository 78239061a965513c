// plugin/driver/host/memory_file.cc: writes bytes to a memory file, whole or not at all.
#include "driver/host/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

namespace jge::host {

MemoryFile::MemoryFile(std::string_view bytes)
    : number_(memfd_create("jge_host_image", MFD_CLOEXEC)) {
  while (number_ >= 0 && !bytes.empty()) {
    const ssize_t wrote = write(number_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const int why = errno;
      close(std::exchange(number_, -1));
      errno = why;
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
}

MemoryFile::~MemoryFile() {
  if (number_ >= 0) close(number_);
}

}  // namespace jge::host

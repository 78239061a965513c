// plugin/core/program/image_bytes.cc: the bytes of a kernel image, one copy per process.
#include "core/program/image_bytes.h"

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "core/base/error.h"
#include "core/program/fatbin.h"
#include "core/program/image_variables.h"
#include "driver/elf.h"
#include "driver/fork.h"

namespace jge {
namespace {

void validate(std::string_view bytes) {
  const auto refuse = [](const char* why) {
    throw Error(Code::invalid_argument, std::string("a kernel image is damaged: ") + why);
  };
  if (bytes.starts_with(std::string_view(ELFMAG, SELFMAG))) {
    if (!elf_is_complete(bytes)) refuse("its ELF headers point past its end");
    return;
  }
  if (const auto fatbin = Fatbin::read(bytes)) {
    if (!fatbin->is_complete(bytes)) refuse("its fatbin header points past its end");
    return;
  }
  // PTX is text; compilers hand it out with its terminating NUL.
  const std::string_view text = bytes.substr(0, bytes.find_last_not_of('\0') + 1);
  if (text.find(".version") != text.npos && text.find('\0') == text.npos) return;
  refuse("it is no cubin, fatbin, PTX or shared object");
}

ForkLock mutex;
// Keyed by content; the view lies in the object that the weak pointer refers to.
auto& interned() {
  static auto* const map =
      new std::unordered_map<std::string_view, std::weak_ptr<const ImageBytes>>();
  return *map;
}

// What is known under these bytes; the lock is held.
std::shared_ptr<const ImageBytes> find(std::string_view bytes) {
  auto found = interned().find(bytes);
  if (found == interned().end()) return nullptr;
  if (auto image = found->second.lock()) return image;
  // Its last holder is between dropping it and forget().
  interned().erase(found);
  return nullptr;
}

void forget(const ImageBytes* image) {
  {
    std::lock_guard lock(mutex);
    auto found = interned().find(image->view());
    // Another object may have taken the place since.
    if (found != interned().end() && found->first.data() == image->view().data()) {
      interned().erase(found);
    }
  }
  delete image;
}

}  // namespace

ImageBytes::ImageBytes(std::string_view bytes)
    : bytes_(bytes), has_variables_(jge::has_variables(bytes)) {}

std::shared_ptr<const ImageBytes> intern_image(std::string_view bytes) {
  {
    std::lock_guard lock(mutex);
    if (auto image = find(bytes)) return image;
  }
  validate(bytes);
  // Made and dropped outside of the lock, which forget() takes.
  const std::shared_ptr<const ImageBytes> mine(new ImageBytes(bytes), forget);
  std::lock_guard lock(mutex);
  if (auto image = find(bytes)) return image;
  interned().emplace(mine->view(), mine);
  return mine;
}

}  // namespace jge

// plugin/core/image_bytes.cc: the bytes of a kernel image, one copy per process.
#include "core/image_bytes.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "core/error.h"

namespace jge {
namespace {

// The first bytes of a fat binary, as nvcc and nvFatbin write it (fatbinary_section.h).
struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version, header_size;
  std::uint64_t size;
};
constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;

// Whether `count` records of `size` bytes from `offset` lie within `available` bytes.
bool within(std::uint64_t offset, std::uint64_t count, std::uint64_t size,
            std::uint64_t available) {
  return offset <= available && (size == 0 || count <= (available - offset) / size);
}

void validate(std::string_view bytes) {
  const auto refuse = [](const char* why) {
    throw Error(Code::invalid_argument, std::string("a kernel image is damaged: ") + why);
  };
  if (bytes.starts_with(std::string_view(ELFMAG, SELFMAG))) {
    Elf64_Ehdr header;
    if (bytes.size() < sizeof header) refuse("its ELF header is cut off");
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64) refuse("it is not a 64-bit ELF file");
    if (!within(header.e_shoff, header.e_shnum, header.e_shentsize, bytes.size()) ||
        !within(header.e_phoff, header.e_phnum, header.e_phentsize, bytes.size())) {
      refuse("its ELF headers point past its end");
    }
    return;
  }
  FatbinHeader fatbin;
  if (bytes.size() >= sizeof fatbin) {
    std::memcpy(&fatbin, bytes.data(), sizeof fatbin);
    if (fatbin.magic == kFatbinMagic) {
      if (!within(fatbin.header_size, fatbin.size, 1, bytes.size())) {
        refuse("its fatbin header points past its end");
      }
      return;
    }
  }
  if (bytes.find(".version") != std::string_view::npos &&
      bytes.find('\0') == std::string_view::npos) {
    return;  // PTX
  }
  refuse("it is no cubin, fatbin, PTX or shared object");
}

std::mutex mutex;
// Keyed by content; the view lies in the object that the weak pointer refers to.
auto& interned() {
  static auto* const map =
      new std::unordered_map<std::string_view, std::weak_ptr<const ImageBytes>>();
  return *map;
}

}  // namespace

std::shared_ptr<const ImageBytes> intern_image(std::string_view bytes) {
  std::shared_ptr<const ImageBytes> image;  // outlives the lock: its deleter takes it
  std::lock_guard lock(mutex);
  if (auto found = interned().find(bytes); found != interned().end()) {
    if ((image = found->second.lock())) return image;
    interned().erase(found);  // its last holder is between dropping it and the deleter below
  }
  validate(bytes);
  auto forget = [](const ImageBytes* image) {
    {
      std::lock_guard lock(mutex);
      auto found = interned().find(image->view());
      // Another object may have taken the place since.
      if (found != interned().end() && found->first.data() == image->view().data()) {
        interned().erase(found);
      }
    }
    delete image;
  };
  image = std::shared_ptr<const ImageBytes>(new ImageBytes(bytes), forget);
  interned().emplace(image->view(), image);
  return image;
}

}  // namespace jge

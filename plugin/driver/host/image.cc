// plugin/driver/host/image.cc: whether bytes are a complete shared object of this machine.
#include "driver/host/image.h"

#include <cstring>
#include <string_view>

#include "driver/elf.h"
#include "driver/host_driver.h"

namespace jge::host {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
#error "the software driver knows the ELF machine number of x86-64 and aarch64 only"
#endif

template <class T>
T read(const void* bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(bytes) + offset, sizeof value);
  return value;
}

// The size that the ELF header promises: linkers put the section headers last.
std::optional<std::uint64_t> promised_size(const void* bytes) {
  const auto header = read<Elf64_Ehdr>(bytes, 0);
  const bool plausible =
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
      header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_ident[EI_VERSION] == EV_CURRENT &&
      header.e_version == EV_CURRENT && header.e_type == ET_DYN && header.e_machine == kMachine &&
      header.e_ehsize == sizeof(Elf64_Ehdr) && header.e_phentsize == sizeof(Elf64_Phdr) &&
      header.e_shentsize == sizeof(Elf64_Shdr) && header.e_phnum > 0 && header.e_shnum > 0;
  constexpr std::uint64_t kMaxImage = std::uint64_t{1} << 32;
  if (!plausible || header.e_shoff < sizeof header || header.e_shoff > kMaxImage) {
    return std::nullopt;
  }
  return header.e_shoff + header.e_shnum * sizeof(Elf64_Shdr);
}

// What dlopen needs to map it and to find its symbols.
bool has_segments(std::string_view bytes) {
  const auto header = read<Elf64_Ehdr>(bytes.data(), 0);
  bool loads = false, dynamic = false;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read<Elf64_Phdr>(bytes.data(), header.e_phoff + i * sizeof(Elf64_Phdr));
    loads = loads || segment.p_type == PT_LOAD;
    dynamic = dynamic || segment.p_type == PT_DYNAMIC;
  }
  return loads && dynamic;
}

}  // namespace

std::optional<std::size_t> image_size(const void* bytes) {
  const auto promised = promised_size(bytes);
  return promised ? image_size(bytes, *promised) : std::nullopt;
}

std::optional<std::size_t> image_size(const void* bytes, std::size_t available) {
  if (!bytes || available < sizeof(Elf64_Ehdr)) return std::nullopt;
  const auto size = promised_size(bytes);
  if (!size || *size > available) return std::nullopt;
  const std::string_view image(static_cast<const char*>(bytes), *size);
  if (!elf_is_complete(image) || !has_segments(image)) return std::nullopt;
  return *size;
}

}  // namespace jge::host

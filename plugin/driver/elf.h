// plugin/driver/elf.h: whether an ELF file is all there, before a loader trusts its headers.
#pragma once

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace jge {

// Whether bytes [offset, offset + bytes) lie within the first `size`.
inline bool within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

// Whether every header, segment and section of a 64-bit ELF file lies within its bytes.
inline bool elf_is_complete(std::string_view bytes) {
  const auto read = [&]<class T>(T& value, std::uint64_t offset) {
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  };
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header) return false;
  read(header, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
    return false;
  }
  if (header.e_phnum > 0 && header.e_phentsize != sizeof(Elf64_Phdr)) return false;
  if (header.e_shnum > 0 && header.e_shentsize != sizeof(Elf64_Shdr)) return false;
  if (!within(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr), bytes.size()) ||
      !within(header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr), bytes.size())) {
    return false;
  }
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    read(segment, header.e_phoff + i * sizeof segment);
    if (!within(segment.p_offset, segment.p_filesz, bytes.size())) return false;
  }
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    read(section, header.e_shoff + i * sizeof section);
    const bool in_file = section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL;
    if (in_file && !within(section.sh_offset, section.sh_size, bytes.size())) return false;
  }
  return true;
}

}  // namespace jge

// plugin/core/program/fatbin.h: several images in one, as nvcc and nvFatbin write them.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "driver/elf.h"

namespace jge {

// The first bytes of one (fatbinary_section.h).
struct Fatbin {
  static constexpr std::uint32_t kMagic = 0xBA55ED50;

  std::uint32_t magic;
  std::uint16_t version, header_size;
  std::uint64_t size;

  // Nothing if the bytes do not begin as one.
  static std::optional<Fatbin> read(std::string_view bytes) {
    Fatbin fatbin;
    if (bytes.size() < sizeof fatbin) return std::nullopt;
    std::memcpy(&fatbin, bytes.data(), sizeof fatbin);
    return fatbin.magic == kMagic ? std::optional(fatbin) : std::nullopt;
  }

  bool is_complete(std::string_view bytes) const {
    return header_size >= sizeof *this && within(header_size, size, bytes.size());
  }

  // The images in it. Nothing if one is compressed, or of a kind that is not known.
  std::optional<std::vector<std::string_view>> entries(std::string_view bytes) const {
    struct Entry {
      std::uint16_t kind, version;
      std::uint32_t header_size;
      std::uint64_t size;
      std::uint32_t compressed_size;
    };
    constexpr std::uint16_t kPtx = 1, kElf = 2;
    if (!is_complete(bytes)) return std::nullopt;
    std::vector<std::string_view> images;
    for (std::string_view rest = bytes.substr(header_size, size); !rest.empty();) {
      Entry entry;
      if (rest.size() < sizeof entry) return std::nullopt;
      std::memcpy(&entry, rest.data(), sizeof entry);
      if (entry.header_size < sizeof entry || entry.compressed_size != 0 ||
          !within(entry.header_size, entry.size, rest.size())) {
        return std::nullopt;
      }
      const std::string_view image = rest.substr(entry.header_size, entry.size);
      const bool elf = image.starts_with(std::string_view(ELFMAG, SELFMAG));
      const bool ptx = image.find(".version") != image.npos;
      if (!(entry.kind == kElf && elf) && !(entry.kind == kPtx && ptx)) return std::nullopt;
      images.push_back(image);
      rest.remove_prefix(entry.header_size + entry.size);
    }
    return images;
  }
};

}  // namespace jge

// plugin/core/program/image_variables.cc: whether an image's kernels may write variables of it.
#include "core/program/image_variables.h"

#include <cctype>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/program/fatbin.h"
#include "driver/elf.h"

namespace jge {
namespace {

#ifndef EM_CUDA
constexpr Elf64_Half EM_CUDA = 190;
#endif

bool begins_with_one_of(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  for (std::string_view beginning : beginnings) {
    if (name.starts_with(beginning)) return true;
  }
  return false;
}

// Constants that CUDA's compilers make: formats, names of functions, tables of the mathematics
// library. And the types of kernels, which our compiler asks for.
bool is_made_for_cuda(std::string_view name) {
  return begins_with_one_of(name, {"$str", "__unnamed_", "__cudart_", ".nv.", "__nv_"}) ||
         name.find("__jge_type") != name.npos || name.find("__PRETTY_FUNCTION__") != name.npos ||
         name.find("__func__") != name.npos;
}

// What linkers and our header add to a shared object.
bool is_made_for_the_cpu(std::string_view name) {
  return begins_with_one_of(name, {"_ZN3jge", "jge_", "completed.", "__dso_handle", "_ZGV"});
}

// A 64-bit ELF file, of which elf_is_complete() holds.
class Elf {
 public:
  explicit Elf(std::string_view bytes) : bytes_(bytes), header_(*at<Elf64_Ehdr>(0)) {}

  bool has_variables() const {
    bool symbols = false;
    const std::optional<std::uint64_t> table = table_of_kernels();
    for (std::uint64_t s = 0; s < header_.e_shnum; ++s) {
      const Elf64_Shdr symtab = section(s);
      if (symtab.sh_type != SHT_SYMTAB) continue;
      symbols = true;
      for (std::uint64_t i = 0; i < symtab.sh_size / sizeof(Elf64_Sym); ++i) {
        const auto symbol = at<Elf64_Sym>(symtab.sh_offset + i * sizeof(Elf64_Sym));
        if (!symbol || is_variable(*symbol, symtab, table)) return true;
      }
    }
    return !symbols && has_writable_sections();
  }

 private:
  template <class T>
  std::optional<T> at(std::uint64_t offset) const {
    if (!within(offset, sizeof(T), bytes_.size())) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  Elf64_Shdr section(std::uint64_t index) const {
    return at<Elf64_Shdr>(header_.e_shoff + index * sizeof(Elf64_Shdr)).value_or(Elf64_Shdr{});
  }
  std::string_view name(std::uint64_t strings, std::uint64_t offset) const {
    const Elf64_Shdr names = section(strings < header_.e_shnum ? strings : 0);
    if (names.sh_type != SHT_STRTAB || offset >= names.sh_size) return "?";
    const std::string_view rest = bytes_.substr(names.sh_offset, names.sh_size).substr(offset);
    return rest.substr(0, rest.find('\0'));
  }

  // Whether a kernel may write what lies there.
  bool is_writable(const Elf64_Shdr& of) const {
    if (!(of.sh_flags & SHF_WRITE) || (of.sh_flags & SHF_TLS) || of.sh_size == 0) return false;
    const std::string_view called = name(header_.e_shstrndx, of.sh_name);
    if (header_.e_machine == EM_CUDA) return !called.starts_with(".nv.shared");
    return begins_with_one_of(called, {".data", ".bss", ".ldata", ".lbss"}) &&
           !called.starts_with(".data.rel.ro");
  }

  bool is_variable(const Elf64_Sym& symbol, const Elf64_Shdr& symtab,
                   std::optional<std::uint64_t> table) const {
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    if ((type != STT_OBJECT && type != STT_COMMON) || symbol.st_size == 0) return false;
    const std::string_view called = name(symtab.sh_link, symbol.st_name);
    const bool gpu = header_.e_machine == EM_CUDA;
    if (gpu ? is_made_for_cuda(called) : is_made_for_the_cpu(called)) return false;
    if (symbol.st_shndx == SHN_UNDEF) return gpu;  // another module's, say
    if (symbol.st_shndx >= header_.e_shnum) return true;
    return symbol.st_value != table && is_writable(section(symbol.st_shndx));
  }

  bool has_writable_sections() const {
    for (std::uint64_t s = 0; s < header_.e_shnum; ++s) {
      if (is_writable(section(s))) return true;
    }
    return header_.e_shnum == 0;
  }

  // A shared object's list of its kernels, to which its one exported variable points.
  std::optional<std::uint64_t> table_of_kernels() const {
    std::optional<Elf64_Sym> image;
    for (std::uint64_t s = 0; s < header_.e_shnum && !image; ++s) {
      const Elf64_Shdr symbols = section(s);
      if (symbols.sh_type != SHT_DYNSYM) continue;
      for (std::uint64_t i = 0; i < symbols.sh_size / sizeof(Elf64_Sym) && !image; ++i) {
        image = at<Elf64_Sym>(symbols.sh_offset + i * sizeof(Elf64_Sym));
        if (image && name(symbols.sh_link, image->st_name) != "jge_host_image") image.reset();
      }
    }
    for (std::uint64_t s = 0; s < header_.e_shnum && image; ++s) {
      const Elf64_Shdr relocations = section(s);
      if (relocations.sh_type != SHT_RELA) continue;
      for (std::uint64_t i = 0; i < relocations.sh_size / sizeof(Elf64_Rela); ++i) {
        const auto one = at<Elf64_Rela>(relocations.sh_offset + i * sizeof(Elf64_Rela));
        if (one && one->r_offset - image->st_value < image->st_size) return one->r_addend;
      }
    }
    return std::nullopt;
  }

  std::string_view bytes_;
  Elf64_Ehdr header_;
};

// A variable is declared as `.global .align 4 .u32 name` with `[`, `=` or `;` behind it; a
// parameter may be a `.ptr .global`.
bool ptx_has_variables(std::string_view text) {
  constexpr std::string_view kGlobal = ".global";
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t at = text.find(kGlobal); at != text.npos; at = text.find(kGlobal, at + 1)) {
    if (at > 0 && !is_space(text[at - 1])) continue;  // as in ld.global.f32
    std::string_view before = text.substr(0, at);
    while (!before.empty() && is_space(before.back())) before.remove_suffix(1);
    if (before.ends_with(".ptr")) continue;
    std::string_view declared = text.substr(at + kGlobal.size());
    declared = declared.substr(0, declared.find_first_of("[=;,"));
    while (!declared.empty() && is_space(declared.back())) declared.remove_suffix(1);
    const std::size_t space = declared.find_last_of(" \t\r\n");
    if (!is_made_for_cuda(declared.substr(space == declared.npos ? 0 : space + 1))) return true;
  }
  return false;
}

bool image_has_variables(std::string_view image) {
  if (image.starts_with(std::string_view(ELFMAG, SELFMAG))) {
    return !elf_is_complete(image) || Elf(image).has_variables();
  }
  return ptx_has_variables(image);
}

}  // namespace

bool has_variables(std::string_view image) {
  const auto fatbin = Fatbin::read(image);
  if (!fatbin) return image_has_variables(image);
  const std::optional<std::vector<std::string_view>> entries = fatbin->entries(image);
  if (!entries) return true;
  for (std::string_view entry : *entries) {
    if (image_has_variables(entry)) return true;
  }
  return false;
}

}  // namespace jge

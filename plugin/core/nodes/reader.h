// plugin/core/nodes/reader.h: reads a program's bytes, which may be hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/nodes/operands.h"

namespace jge {

// Throws Error (invalid_argument).
[[noreturn]] void refuse(const std::string& why);

// Every read is checked against the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  T integer() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint8_t u8() { return integer<std::uint8_t>(); }
  std::uint32_t u32() { return integer<std::uint32_t>(); }
  std::uint64_t u64() { return integer<std::uint64_t>(); }
  std::string_view str() { return take(u32()); }
  std::string_view blob() { return take(u64()); }
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) refuse("it ends early");
    std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  // A count of records of at least `record` bytes each, so that no count outgrows the input.
  std::uint32_t count(std::size_t record) {
    const std::uint32_t n = u32();
    if (n > rest_.size() / record) refuse("a count is larger than what follows it");
    return n;
  }
  // A bit in a byte of its own.
  bool flag(const char* of) {
    const std::uint8_t flags = u8();
    if (flags > 1) refuse(of + std::string(" has unknown flags"));
    return flags & 1;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// What a kind of node is read with: the bytes, what they may refer to, and where bindings go.
struct NodeReader {
  Reader& in;
  const Buffers& buffers;
  std::span<const Kernel> kernels;
  std::vector<Binding>& bindings;
  std::vector<std::byte>& values;

  // Adds the binding of a pointer to memory that the node reads, writes or both.
  Binding pointer(bool reads, bool writes);
  // Adds the binding of a parameter of so many bytes.
  void value(std::uint32_t size);
};

}  // namespace jge

// tests/cpp/program_bytes.h: writes programs in the format of core/program/program.h, right or
// wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace jge::test {

class Writer {
 public:
  template <class T>
  Writer& raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& u8(std::uint8_t value) { return raw(value); }
  Writer& u32(std::uint32_t value) { return raw(value); }
  Writer& u64(std::uint64_t value) { return raw(value); }
  Writer& str(const std::string& text) {
    u32(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  Writer& append(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  Writer& argument(std::uint32_t index, std::uint64_t offset, std::uint64_t bytes) {
    return u8(0).u32(index).u64(offset).u64(bytes);
  }
  Writer& result(std::uint32_t index, std::uint64_t offset, std::uint64_t bytes) {
    return u8(1).u32(index).u64(offset).u64(bytes);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A program of `affine(float* data, float scale, float shift, int n)` nodes, fills and copies over
// buffers of `n` floats that are updated in place: argument i is result i.
class AffineProgram {
 public:
  AffineProgram(std::string image, int buffers, std::uint32_t n)
      : image_(std::move(image)), buffers_(buffers), n_(n) {}

  AffineProgram& add(std::uint32_t buffer, float scale, float shift) {
    nodes_.u8(1).u32(0);
    nodes_.u32((n_ + 63) / 64 * cluster_).u32(1).u32(1).u32(block_).u32(1).u32(1);
    nodes_.u32(cluster_).u32(1).u32(1);
    nodes_.u32(shared_bytes_).u8(cooperative_);
    nodes_.result(buffer, 0, std::uint64_t{4} * n_);
    nodes_.raw(scale).raw(shift).raw(static_cast<std::int32_t>(n_));
    ++count_;
    return *this;
  }
  // Offsets and sizes in bytes.
  AffineProgram& memset(std::uint32_t buffer, std::uint8_t element, std::uint32_t value,
                        std::uint64_t offset, std::uint64_t bytes) {
    nodes_.u8(2).u8(element).u32(value).result(buffer, offset, bytes);
    ++count_;
    return *this;
  }
  AffineProgram& memcpy(std::uint32_t from, std::uint64_t from_offset, std::uint32_t to,
                        std::uint64_t to_offset, std::uint64_t bytes) {
    nodes_.u8(3).result(from, from_offset, bytes).result(to, to_offset, bytes);
    ++count_;
    return *this;
  }
  // Adds a scratch buffer after the others.
  AffineProgram& scratch() {
    scratch_ = 1;
    return *this;
  }
  AffineProgram& block(std::uint32_t threads) {
    block_ = threads;
    return *this;
  }
  AffineProgram& shared(std::uint32_t bytes) {
    shared_bytes_ = bytes;
    return *this;
  }
  AffineProgram& cluster(std::uint32_t blocks) {
    cluster_ = blocks;
    return *this;
  }
  AffineProgram& cooperative() {
    cooperative_ = 1;
    return *this;
  }
  AffineProgram& symbol(std::string name) {
    symbol_ = std::move(name);
    return *this;
  }
  AffineProgram& shift_type(std::uint32_t size) {
    shift_size_ = size;
    return *this;
  }

  std::string bytes() const {
    Writer out;
    out.append("JGEP").u32(1).str("test program");
    out.u32(buffers_);
    for (int i = 0; i < buffers_; ++i) out.u64(std::uint64_t{4} * n_);
    out.u32(buffers_ + scratch_);
    for (int i = 0; i < buffers_; ++i) out.u64(std::uint64_t{4} * n_).u32(i + 1).u8(0);
    if (scratch_) out.u64(std::uint64_t{4} * n_).u32(0).u8(1);
    out.u32(1).u64(image_.size()).append(image_);
    out.u32(1).u32(0).str(symbol_).str("affine of the test");
    out.u32(4);
    out.str("data").u8(1).u8(3).u32(8);
    out.str("scale").u8(0).u8(0).u32(4);
    out.str("shift").u8(0).u8(0).u32(shift_size_);
    out.str("n").u8(0).u8(0).u32(4);
    out.u32(count_).append(nodes_.bytes());
    return out.bytes();
  }

 private:
  std::string image_, symbol_ = "affine";
  int buffers_;
  std::uint32_t n_, block_ = 64, shared_bytes_ = 0, cluster_ = 1, shift_size_ = 4, count_ = 0;
  std::uint8_t cooperative_ = 0, scratch_ = 0;
  Writer nodes_;
};

// A program of `scaled(float a, Arrays arrays, float b)` nodes over buffers of `n` floats that are
// updated in place; the two pointers are members of the struct, of 24 bytes.
class ArraysProgram {
 public:
  ArraysProgram(std::string image, int buffers, std::uint32_t n)
      : image_(std::move(image)), buffers_(buffers), n_(n) {
    member(1, 8, 1).member(1, 16, 2);
  }

  ArraysProgram& add(std::uint32_t from, std::uint32_t to, float a, float b) {
    nodes_.u8(1).u32(0).u32(1).u32(1).u32(1).u32(64).u32(1).u32(1).u32(1).u32(1).u32(1);
    nodes_.u32(0).u8(0).raw(a);
    nodes_.u32(n_).u32(0).u64(0).u64(0).raw(b);
    nodes_.result(from, 0, std::uint64_t{4} * n_).result(to, 0, std::uint64_t{4} * n_);
    ++count_;
    return *this;
  }
  ArraysProgram& no_members() {
    members_ = Writer();
    member_count_ = 0;
    return *this;
  }
  ArraysProgram& member(std::uint32_t parameter, std::uint32_t offset, std::uint8_t access) {
    members_.u32(parameter).u32(offset).str("arrays.m" + std::to_string(member_count_++));
    members_.u8(access);
    return *this;
  }

  std::string bytes() const {
    Writer out;
    out.append("JGEP").u32(2).str("members");
    out.u32(buffers_);
    for (int i = 0; i < buffers_; ++i) out.u64(std::uint64_t{4} * n_);
    out.u32(buffers_);
    for (int i = 0; i < buffers_; ++i) out.u64(std::uint64_t{4} * n_).u32(i + 1).u8(0);
    out.u32(1).u64(image_.size()).append(image_);
    out.u32(1).u32(0).str("scaled").str("scaled of the test");
    out.u32(3);
    out.str("a").u8(0).u8(0).u32(4);
    out.str("arrays").u8(0).u8(0).u32(24);
    out.str("b").u8(0).u8(0).u32(4);
    out.u32(member_count_).append(members_.bytes());
    out.u32(count_).append(nodes_.bytes());
    return out.bytes();
  }

 private:
  std::string image_;
  int buffers_;
  std::uint32_t n_, member_count_ = 0, count_ = 0;
  Writer members_, nodes_;
};

}  // namespace jge::test

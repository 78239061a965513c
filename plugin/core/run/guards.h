// plugin/core/run/guards.h: whether kernels write behind what they are given of scratch memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/program/program.h"

namespace jge {

// The gaps behind the values in a program's scratch memory, which nothing may touch. On the CPU a
// kernel that writes too far meets them, where a GPU or XLA's own buffers show nothing.
class Guards {
 public:
  // Of a program that lives as long.
  explicit Guards(const Program& program);

  bool empty() const { return guards_.empty(); }
  // Before a run, in this scratch memory.
  void fill(void* scratch) const;
  // After it: what was written behind, or "".
  std::string broken(const void* scratch) const;

 private:
  struct Guard {
    std::uint64_t offset, bytes;
  };

  std::string writers(std::uint64_t end) const;

  static constexpr std::uint64_t kMostBytes = 64;
  static constexpr unsigned char kByte = 0xa5;

  const Program* program_;
  std::vector<Guard> guards_;
};

}  // namespace jge

// plugin/core/arena.h: device memory that stays in its place from run to run.
#pragma once

#include <cstdint>

#include "core/handle.h"

namespace jge {

// Scratch memory of one stream's programs, which take turns with it. XLA's own moves whenever other
// arrays do, and every node that uses it would have to be patched.
class Arena {
 public:
  // Larger scratch memory is better left to XLA, which gives it to others in between.
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;

  // Memory of at least so many bytes, the same as long as they suffice; null for more than
  // kMaxBytes, and where the device has none left. The device's context must be current. Throws
  // Error where work that uses the memory so far has failed.
  void* at_least(const Driver& driver, CUstream stream, std::uint64_t bytes);

 private:
  DeviceMemory memory_;
  std::uint64_t bytes_ = 0;
  std::uint64_t refused_ = kMaxBytes + 1;  // so many are not asked for again
};

}  // namespace jge

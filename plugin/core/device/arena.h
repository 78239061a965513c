// plugin/core/device/arena.h: device memory that stays in its place from run to run.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/handle.h"

namespace jge {

// Scratch memory of one stream's programs, which take turns with it (docs/plugin_invariants.md, 7).
// XLA's own moves whenever other arrays do, and every node that uses it would have to be patched.
class Arena {
 public:
  // Larger scratch memory is better left to XLA, which gives it to others in between.
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;

  // Memory of at least so many bytes, always the same for as many; null for more than kMaxBytes,
  // and where the device has none left. The device's context must be current.
  void* at_least(const Driver& driver, std::uint64_t bytes);

  // Notes that what is on the stream so far uses the memory.
  void note_use(const Driver& driver, CUstream stream);

  // Whether all that used the memory was noted, and is over: another stream may have it.
  bool is_free(const Driver& driver) const;

  bool empty() const { return blocks_.empty(); }

 private:
  struct Block {
    DeviceMemory memory;
    std::uint64_t bytes;
  };

  // Each at least twice as large as the one before. None is freed for a larger one: programs would
  // have to be patched, and the driver waits for all streams before it frees and keeps all threads
  // from launching, though a stream may wait for such a launch (a collective operation does).
  std::vector<Block> blocks_;
  Event used_;                             // after the last use that was noted
  std::uint64_t refused_ = kMaxBytes + 1;  // so many are not asked for again
};

}  // namespace jge

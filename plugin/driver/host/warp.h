// plugin/driver/host/warp.h: the lanes of a warp, by what they wait for.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "driver/host/fiber.h"
#include "host_image.h"

namespace jge::host {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kNoThread = ~0u;

inline std::uint32_t bit_of(std::uint32_t thread) { return 1u << thread % kLanes; }

inline bool same(const JgeHostPlace& one, const JgeHostPlace& other) {
  return one.line == other.line && std::strcmp(one.file, other.file) == 0;
}

// A stack, and the thread that waits on it.
struct Runner {
  Runner() = default;
  explicit Runner(const Stack& stack) : fiber(stack) {}
  Fiber fiber;
  std::uint32_t thread = kNoThread;  // none: it runs threads that have not waited
  JgeHostPlace place{};
  std::uint32_t converged = 0;  // the answer to active()
};

// A value from each lane of a mask. There are two rounds of slots: a lane that goes ahead to the
// next exchange cannot finish it before the others have arrived there, having read this one's.
struct Exchange {
  std::uint32_t mask = 0, arrived = 0, round = 0;
  std::array<std::uint32_t, 2> took_part{};
  alignas(16) unsigned char slots[2][kLanes][JGE_HOST_SLOT];
};

// Sets of lanes, as bits.
struct Warp {
  std::uint32_t alive = 0;  // have waited, and not left the kernel
  std::uint32_t ready = 0, at_barrier = 0, asking = 0, yielding = 0;
  std::array<Runner*, kLanes> lanes;
  std::vector<Exchange> exchanges;  // one for each mask in use
};

}  // namespace jge::host

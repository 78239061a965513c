// plugin/driver/host/limits.h: what a launch may ask for: a GPU's limits, so that its programs fit.
#pragma once

#include <array>
#include <cstdint>

namespace jge::host {

inline constexpr int kMaxThreads = 1024;                 // per block
inline constexpr int kMaxSharedBytes = 48 * 1024;        // per block
inline constexpr int kMaxSharedBytesOptIn = 227 * 1024;  // per block, once the kernel opts in
inline constexpr int kSharedBytesReserved = 1024;        // per block, by the system
inline constexpr int kMultiprocessorSharedBytes = 228 * 1024;
inline constexpr int kMultiprocessorThreads = 2048;
inline constexpr int kMultiprocessorBlocks = 32;
inline constexpr std::array<std::uint32_t, 3> kMaxGrid = {2147483647, 65535, 65535};
inline constexpr std::array<std::uint32_t, 3> kMaxBlock = {1024, 1024, 64};

}  // namespace jge::host

// plugin/driver/host/wait_errors.h: what is said about threads that cannot go on.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "driver/host/warp.h"

namespace jge::host {

// Why a barrier that all `live` of a block's `threads` wait at is an error in a checked image: some
// have left the kernel or are at another barrier, which a GPU may forgive. Empty if it is none.
std::string unreached_barrier(std::span<const Warp> warps, std::uint32_t threads,
                              std::uint32_t live);

// Where the threads of a block wait that wait for each other.
std::string deadlock(std::span<const Warp> warps, std::uint32_t threads, std::uint32_t live);

}  // namespace jge::host

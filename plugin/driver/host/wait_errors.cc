// plugin/driver/host/wait_errors.cc: finds where the threads of a block wait.
#include "driver/host/wait_errors.h"

#include <bit>

namespace jge::host {
namespace {

std::string text_of(const JgeHostPlace& place) {
  return std::string(place.file) + ":" + std::to_string(place.line);
}

// Calls visit(place, at the block's barrier) for each lane that waits.
template <class Visit>
void for_each_waiting(std::span<const Warp> warps, Visit visit) {
  for (const Warp& warp : warps) {
    for (std::uint32_t rest = warp.alive; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<std::uint32_t>(std::countr_zero(rest));
      visit(warp.lanes[lane]->place, (warp.at_barrier >> lane & 1) != 0);
    }
  }
}

}  // namespace

std::string unreached_barrier(std::span<const Warp> warps, std::uint32_t threads,
                              std::uint32_t live) {
  const JgeHostPlace* first = nullptr;
  const JgeHostPlace* other = nullptr;
  std::uint32_t elsewhere = 0;
  for_each_waiting(warps, [&](const JgeHostPlace& place, bool at_barrier) {
    if (!at_barrier) return;
    if (!first) first = &place;
    if (same(*first, place)) return;
    other = &place;
    ++elsewhere;
  });
  if (elsewhere == 0 && live == threads) return {};
  const std::string begin =
      text_of(*first) + ": " + first->what + " is not reached by all threads of the block: ";
  const std::string of = " of " + std::to_string(threads);
  return elsewhere > 0 ? begin + std::to_string(elsewhere) + of + " wait at " + text_of(*other)
                       : begin + std::to_string(threads - live) + of + " have left the kernel";
}

std::string deadlock(std::span<const Warp> warps, std::uint32_t threads, std::uint32_t live) {
  const JgeHostPlace* barrier = nullptr;
  const JgeHostPlace* within = nullptr;
  std::uint32_t barrier_count = 0, within_count = 0;
  for_each_waiting(warps, [&](const JgeHostPlace& place, bool at_barrier) {
    const JgeHostPlace*& first = at_barrier ? barrier : within;
    if (!first) first = &place;
    ++(at_barrier ? barrier_count : within_count);
  });
  std::string others;
  if (barrier) {
    others =
        std::to_string(barrier_count) + " at " + barrier->what + " (" + text_of(*barrier) + "), ";
  }
  return text_of(*within) + ": " + within->what + " never ends: of " + std::to_string(threads) +
         " threads " + std::to_string(within_count) + " wait there, " + others +
         std::to_string(threads - live) + " have left the kernel";
}

}  // namespace jge::host

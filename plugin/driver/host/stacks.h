// plugin/driver/host/stacks.h: memory for the stacks of fibers, a warp's in one mapping.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jge::host {

// Memory of one stack, which grows down from `top`, a multiple of 64, to `bottom`.
struct Stack {
  void* bottom = nullptr;
  void* top = nullptr;
  std::uint64_t* mark = nullptr;  // below the bottom; null where a guard page is

  void write_mark() const;
  bool overflowed() const;
};

// Stacks side by side. A process may map only so many ranges, so that a guard page for each stack
// would end at some 30,000 of them: there is one below the first, and a mark between neighbours,
// which an overflow destroys on its way into the next stack.
class Stacks {
 public:
  static constexpr std::size_t kCount = 32;
  // CUDA gives a thread up to 512 KB of local memory. What is not touched takes none.
  static constexpr std::size_t kBytes = 640 * 1024;

  Stacks();  // throws std::bad_alloc
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  Stack operator[](std::size_t i) const;

 private:
  void* mapping_ = nullptr;
};

}  // namespace jge::host

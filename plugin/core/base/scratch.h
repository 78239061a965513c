// plugin/core/base/scratch.h: an array that is filled, forgotten and filled again.
#pragma once

#include <cstddef>
#include <vector>

namespace jge {

// Elements are added some at a time, without being set, which a vector would do for each.
template <class T>
class Scratch {
 public:
  // The next `count` elements, for the caller to set. Earlier ones may move.
  T* take(std::size_t count) {
    size_ += count;
    if (size_ > room_.size()) room_.resize(2 * size_);
    return room_.data() + size_ - count;
  }
  T* data() { return room_.data(); }
  const T* data() const { return room_.data(); }
  std::size_t size() const { return size_; }

  // Keeps the memory.
  void clear() { size_ = 0; }

 private:
  std::vector<T> room_;
  std::size_t size_ = 0;
};

}  // namespace jge

// plugin/core/base/kept_vector.h: a vector whose memory a thread keeps between calls.
#pragma once

#include <utility>
#include <vector>

namespace jge {

// Empty at first. A warm call allocates nothing, and a call inside the call, as from a hook of
// Python's that runs in its midst, has a vector of its own. Each `Tag` keeps one.
template <class T, class Tag>
class KeptVector {
 public:
  KeptVector() : values(std::move(kept())) { values.clear(); }
  ~KeptVector() { kept() = std::move(values); }
  KeptVector(const KeptVector&) = delete;
  KeptVector& operator=(const KeptVector&) = delete;

  std::vector<T> values;

 private:
  static std::vector<T>& kept() {
    thread_local std::vector<T> vector;
    return vector;
  }
};

}  // namespace jge

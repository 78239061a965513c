// plugin/core/base/lazy.h: a value that is made when it is first asked for.
#pragma once

#include <mutex>
#include <optional>

namespace jge {

// Any number of threads may ask; one makes it while the others wait. If making throws, the next
// caller makes it. (std::call_once would do, but hangs under ThreadSanitizer when it throws.)
template <class T>
class Lazy {
 public:
  template <class Make>
  T& get(Make&& make) {
    std::lock_guard lock(mutex_);
    if (!value_) value_.emplace(make());
    return *value_;
  }

 private:
  std::mutex mutex_;
  std::optional<T> value_;
};

}  // namespace jge

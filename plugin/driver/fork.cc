// plugin/driver/fork.cc: the handlers of fork().
#include "driver/fork.h"

#include <pthread.h>

#include <utility>

namespace jge {
namespace {

constinit std::atomic<unsigned> depth{0};
constinit ForkLock* locks = nullptr;

}  // namespace

struct ForkHandlers {
  static void prepare() {
    for (ForkLock* lock = locks; lock; lock = lock->next_) lock->mutex_.lock();
  }
  static void in_parent() {
    for (ForkLock* lock = locks; lock; lock = lock->next_) lock->mutex_.unlock();
  }
  static void in_child() {
    depth.fetch_add(1, std::memory_order_relaxed);
    in_parent();
  }
  static inline const int installed = pthread_atfork(&prepare, &in_parent, &in_child);
};

unsigned fork_depth() { return depth.load(std::memory_order_relaxed); }

ForkLock::ForkLock() : next_(std::exchange(locks, this)) {}

}  // namespace jge

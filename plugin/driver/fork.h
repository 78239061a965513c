// plugin/driver/fork.h: what a child of fork() does with the state of its parent.
//
// Of the parent's threads the child has the one that forked. What the others were doing stays half
// done there, and the locks that they held stay locked. So global state is guarded by a ForkLock,
// or each process makes its own (PerProcess). What belongs to these remembers its process by
// fork_depth(), and a child leaves alone what is its parent's. See docs/plugin_invariants.md, 30.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

namespace jge {

// How many forks lie between this process and the one that loaded the plugin.
unsigned fork_depth();

// A lock that fork() waits for, so that a child finds it free, and whole what it guards. For global
// objects; under it no other lock is taken and nothing is waited for.
class ForkLock {
 public:
  ForkLock();
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  friend struct ForkHandlers;
  std::mutex mutex_;
  ForkLock* const next_;
};

// A global object that each process makes at first use and never destroys.
template <class T>
class PerProcess {
 public:
  T& get() {
    Made* made = made_.load(std::memory_order_acquire);
    while (!made || made->depth != fork_depth()) {
      auto mine = std::make_unique<Made>();
      if (made_.compare_exchange_strong(made, mine.get(), std::memory_order_acq_rel)) {
        made = mine.release();
      }
    }
    return made->value;
  }

  // Null where this process has not made it.
  T* find() {
    Made* made = made_.load(std::memory_order_acquire);
    return made && made->depth == fork_depth() ? &made->value : nullptr;
  }

 private:
  struct Made {
    T value;
    const unsigned depth = fork_depth();
  };
  std::atomic<Made*> made_{nullptr};
};

}  // namespace jge

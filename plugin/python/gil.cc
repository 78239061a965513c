// plugin/python/gil.cc: taking and releasing the GIL, also while Python ends.
#include "python/gil.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "driver/fork.h"

namespace jge {
namespace {

// Which threads may take the GIL, and how many have, or are about to.
class Gate {
 public:
  // Whether the calling thread may; leave() must follow.
  bool enter() {
    ++inside_;
    if (is_open()) return true;
    leave();
    return false;
  }
  void leave() {
    if (--inside_ == 0) inside_.notify_all();
  }
  void end() {
    ender_ = std::this_thread::get_id();
    ends_ = true;
    for (int inside = inside_; inside > 0; inside = inside_) inside_.wait(inside);
  }
  // A thread in a scope may enter again: end() waits for it.
  bool is_open() const { return !ends_ || ender_ == std::this_thread::get_id() || scopes > 0; }

  inline static thread_local int scopes = 0;  // of class Gil, of this thread

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> ends_{false};
  std::thread::id ender_;
};

Gate& gate() {
  static constinit PerProcess<Gate> gate;
  return gate.get();
}

PyInterpreterState* const interpreter = PyInterpreterState_Get();  // this module's: it is imported
ForkLock adding;

// Adds the calling thread to those that Python knows, for good. PyGILState_Ensure would as well,
// but where Python 3.11 forks meanwhile, the child finds its list of threads locked.
void add_thread() {
  if (PyGILState_GetThisThreadState()) return;
  const std::lock_guard lock(adding);
  PyThreadState_New(interpreter);
}

}  // namespace

Gil::Gil() : taken_(gate().enter()) {
  if (!taken_) return;
  ++Gate::scopes;
  add_thread();
  state_ = PyGILState_Ensure();
}

Gil::~Gil() {
  if (!taken_) return;
  PyGILState_Release(state_);
  --Gate::scopes;
  if (taken_at_ == fork_depth()) gate().leave();
}

NoGil::~NoGil() {
  while (!gate().enter()) pause();
  PyEval_RestoreThread(thread_);
  gate().leave();
}

bool has_python() { return gate().is_open(); }

void end_python() {
  const NoGil no_gil;
  gate().end();
}

}  // namespace jge

// plugin/python/gil.cc: taking and releasing the GIL, also while Python ends.
#include "python/gil.h"

#include <unistd.h>

#include <condition_variable>
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
    const std::lock_guard lock(mutex_);
    if (!admits()) return false;
    ++inside_;
    return true;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) left_.notify_all();
  }
  void end() {
    std::unique_lock lock(mutex_);
    ends_ = true;
    ender_ = std::this_thread::get_id();
    left_.wait(lock, [&] { return inside_ == 0; });
  }
  bool is_open() {
    const std::lock_guard lock(mutex_);
    return admits();
  }

  inline static thread_local int scopes = 0;  // of class Gil, of this thread

 private:
  // A thread in a scope may: end() waits for it.
  bool admits() const { return !ends_ || ender_ == std::this_thread::get_id() || scopes > 0; }

  std::mutex mutex_;
  std::condition_variable left_;
  int inside_ = 0;
  bool ends_ = false;
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

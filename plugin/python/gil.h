// plugin/python/gil.h: taking and releasing the GIL, also while Python ends.
//
// Once the interpreter finalizes, Python ends a thread that asks for the GIL, in the midst of its
// C++ frames. So all of the plugin's threads ask here: after end_python() no other thread than its
// caller gets the GIL. See docs/plugin_invariants.md, 15, 29 and 30.
#pragma once

#include <Python.h>

#include "driver/fork.h"

namespace jge {

// The GIL for a scope, from any thread. False, and without the GIL, once Python ends.
class Gil {
 public:
  Gil();
  ~Gil();
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

  explicit operator bool() const { return taken_; }

 private:
  const unsigned taken_at_ = fork_depth();  // Python may fork in the scope
  const bool taken_;
  PyGILState_STATE state_{};
};

// Releases the GIL for a scope. A thread that comes to its end once Python ends stays there for
// ever: it must hold no lock and own nothing that others wait for.
class NoGil {
 public:
  NoGil() : thread_(PyEval_SaveThread()) {}
  ~NoGil();
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  PyThreadState* thread_;
};

// Whether the calling thread still may have the GIL.
bool has_python();

// Keeps the GIL from all other threads from now on, and waits until they have left their scopes.
// Called with the GIL, on the thread that ends Python.
void end_python();

}  // namespace jge

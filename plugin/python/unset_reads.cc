// plugin/python/unset_reads.cc: reads of outputs that nothing has written, told to Python.
//
// At once, on the thread that ran the kernel, since a warning that comes some time later belongs to
// no call. That thread waits for the GIL. What waits for the kernel has released it: the
// encoder's bindings, and JAX, for its own callbacks. (Array.unsafe_buffer_pointer() has not, and
// waits for ever for either.)
#include "python/unset_reads.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <condition_variable>
#include <mutex>
#include <string>

#include "core/base/error.h"
#include "core/sinks/unset_reads.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace jge {
namespace {

struct Listener {
  std::mutex mutex;
  std::condition_variable quiet;
  PyObject* handler = nullptr;  // Python's; never let go of
  int calls = 0;                // under way
};

Listener& listener() {
  static Listener& listener = *new Listener;  // never destroyed: threads may outlive statics
  return listener;
}

// While this lives, the handler stays, and Python with it.
class Call {
 public:
  Call() {
    const std::lock_guard lock(listener().mutex);
    handler_ = listener().handler;
    ++listener().calls;
  }
  ~Call() {
    const std::lock_guard lock(listener().mutex);
    if (--listener().calls == 0) listener().quiet.notify_all();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  PyObject* handler() const { return handler_; }

 private:
  PyObject* handler_;
};

void tell_python(const std::string& node, const UnsetRead& read) {
  const Call call;
  if (!call.handler()) return;
  const nb::gil_scoped_acquire gil;
  try {
    nb::handle(call.handler())(node, read.parameter, read.line, read.offset, read.bytes, read.block,
                               read.thread);
  } catch (nb::python_error& error) {
    // Where Python makes errors of warnings, the run fails.
    throw Error(Code::internal, nb::cast<std::string>(error.type().attr("__name__")) + ": " +
                                    nb::str(error.value()).c_str());
  }
}

// The handler gets the arguments of Driver's UnsetRead, after the node's name.
void set_handler(nb::callable handler) {
  PyObject* const owned = handler.release().ptr();
  const nb::gil_scoped_release no_gil;
  {
    const std::lock_guard lock(listener().mutex);
    listener().handler = owned;
  }
  unset_read_handler = &tell_python;
}

}  // namespace

void bind_unset_reads(nb::module_& m) {
  m.def("set_unset_read_handler", &set_handler, "handler"_a);
}

void stop_unset_reads() {
  std::unique_lock lock(listener().mutex);
  listener().handler = nullptr;
  listener().quiet.wait(lock, [] { return listener().calls == 0; });
}

}  // namespace jge

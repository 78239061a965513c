// plugin/python/unset_reads.cc: reads of outputs that nothing has written, told to Python.
//
// At once, on the thread that ran the kernel, since a warning that comes some time later belongs to
// no call. That thread waits for the GIL. What waits for the kernel has released it: the
// encoder's bindings, and JAX, for its own callbacks. (Array.unsafe_buffer_pointer() has not, and
// waits for ever for either.)
#include "python/unset_reads.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <string>

#include "core/base/error.h"
#include "core/sinks/unset_reads.h"
#include "python/gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace jge {
namespace {

PyObject* handler = nullptr;  // never let go of; guarded by the GIL

void tell_python(const std::string& node, const UnsetRead& read) {
  const Gil gil;
  if (!gil) return;
  const nb::handle callable(handler);
  try {
    callable(node, read.parameter, read.line, read.offset, read.bytes, read.block, read.thread);
  } catch (nb::python_error& error) {
    // Where Python makes errors of warnings, the run fails.
    throw Error(Code::internal, nb::cast<std::string>(error.type().attr("__name__")) + ": " +
                                    nb::str(error.value()).c_str());
  }
}

// The handler gets the arguments of Driver's UnsetRead, after the node's name.
void set_handler(nb::callable given) {
  handler = given.release().ptr();
  unset_read_handler = &tell_python;
}

}  // namespace

void bind_unset_reads(nb::module_& m) {
  m.def("set_unset_read_handler", &set_handler, "handler"_a);
}

}  // namespace jge

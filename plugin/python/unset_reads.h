// plugin/python/unset_reads.h: reads of outputs that nothing has written, told to Python.
#pragma once

#include <nanobind/nanobind.h>

namespace jge {

void bind_unset_reads(nanobind::module_& m);

}  // namespace jge

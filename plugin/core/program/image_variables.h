// plugin/core/program/image_variables.h: whether an image's kernels may write variables of it.
#pragma once

#include <string_view>

namespace jge {

// Whether an image (complete, as intern_image() leaves it) has variables that its kernels may
// write: `__device__` ones. `__constant__` and `__shared__` ones do not count, nor what compilers
// add, such as formats of printf. True where that cannot be told: by their names, constants of a
// GPU's image are variables too.
bool has_variables(std::string_view image);

}  // namespace jge

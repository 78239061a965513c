// plugin/driver/host/source_line.h: the line of a source that code was compiled from.
#pragma once

#include <string>
#include <string_view>

namespace jge::host {

// "saxpy.cu:7" for an address that a call in a loaded image returns to: the innermost line that is
// none of this package's headers'. Asks addr2line, which comes with the compilers, about the
// image's bytes; without it, the place in the image is named instead.
std::string source_line(const void* code, std::string_view image);

}  // namespace jge::host

// plugin/core/nodes/drawing.h: a node as people see it in a drawing of its graph.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace jge {

struct Drawing {
  std::string label;          // lines, parted by newlines
  const char* shape = "box";  // as Graphviz calls it
};

// "0x7f0012".
inline std::string hex(std::uint64_t bits) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(bits));
  return text;
}

}  // namespace jge

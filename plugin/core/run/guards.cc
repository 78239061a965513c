// plugin/core/run/guards.cc: whether kernels write behind what they are given of scratch memory.
#include "core/run/guards.h"

#include <algorithm>
#include <cstring>
#include <variant>

namespace jge {

Guards::Guards(const Program& program) : program_(&program) {
  if (!program_->scratch) return;
  struct Part {
    std::uint64_t begin, end;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < program_->nodes.size(); ++i) {
    for (const Binding& binding : program_->bindings(i)) {
      if (!binding.pointer() || binding.buffer != *program_->scratch) continue;
      parts.push_back({binding.offset, binding.offset + binding.bytes});
    }
  }
  std::ranges::sort(parts, {}, &Part::begin);
  const std::uint64_t all =
      program_->results[*program_->scratch - program_->arguments.size()].bytes;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    end = std::max(end, parts[i].end);
    const std::uint64_t next = i + 1 < parts.size() ? parts[i + 1].begin : all;
    if (next > end) guards_.push_back({end, std::min(next - end, kMostBytes)});
  }
}

void Guards::fill(void* scratch) const {
  for (const Guard& guard : guards_) {
    std::memset(static_cast<char*>(scratch) + guard.offset, kByte, guard.bytes);
  }
}

std::string Guards::broken(const void* scratch) const {
  for (const Guard& guard : guards_) {
    const auto* begin = static_cast<const unsigned char*>(scratch) + guard.offset;
    if (std::all_of(begin, begin + guard.bytes, [](unsigned char b) { return b == kByte; })) {
      continue;
    }
    return writers(guard.offset) +
           " has written behind it: a check such as `if (i < n)` may be missing; "
           "jge.options(debug=True) finds the line";
  }
  return "";
}

// The kernels whose outputs end there.
std::string Guards::writers(std::uint64_t end) const {
  std::string found;
  for (std::size_t i = 0; i < program_->nodes.size(); ++i) {
    const auto* kernel = std::get_if<KernelNode>(&program_->nodes[i]);
    if (!kernel) continue;
    const auto names = kernel->pointer_names(program_->kernels);
    std::size_t pointer = 0;
    for (const Binding& binding : program_->bindings(i)) {
      if (!binding.pointer()) continue;
      const std::string name = pointer < names.size() ? names[pointer] : "";
      ++pointer;
      if (binding.buffer != *program_->scratch || !binding.writes) continue;
      if (binding.offset + binding.bytes != end) continue;
      const std::string writer = "kernel '" + program_->kernels[kernel->kernel].label +
                                 "', whose output '" + name + "' has " +
                                 std::to_string(binding.bytes) + " bytes,";
      if (found.find(writer) == std::string::npos) found += (found.empty() ? "" : " or ") + writer;
    }
  }
  return found.empty() ? "a kernel" : found;
}

}  // namespace jge

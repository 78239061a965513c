// plugin/core/nodes/reader.cc: reads a program's bytes, which may be hostile.
#include "core/nodes/reader.h"

#include "core/base/error.h"

namespace jge {

void refuse(const std::string& why) {
  throw Error(Code::invalid_argument, "malformed jax_graphenc program: " + why);
}

Binding NodeReader::pointer(bool reads, bool writes) {
  const std::uint8_t side = in.u8();
  const std::uint32_t index = in.u32();
  const std::uint64_t offset = in.u64(), bytes = in.u64();
  const bool result = side == 1;
  const std::size_t arguments = buffers.arguments.size();
  if (side > 1 || index >= (result ? buffers.results.size() : arguments)) {
    refuse("a node names a buffer that is not there");
  }
  const std::uint64_t size = result ? buffers.results[index].bytes : buffers.arguments[index];
  if (offset > size || bytes > size - offset) refuse("a node reaches past the end of a buffer");
  if (!result && writes) {
    refuse("a node writes to an argument; a result that aliases it is needed");
  }
  const auto buffer = static_cast<std::uint32_t>(result ? arguments + index : index);
  return bindings.emplace_back(buffer, reads, writes, offset, bytes);
}

void NodeReader::value(std::uint32_t size) {
  Binding& binding = bindings.emplace_back();
  binding.offset = values.size();
  binding.bytes = size;
  const std::string_view value = in.take(size);
  values.resize(binding.offset + size);
  std::memcpy(values.data() + binding.offset, value.data(), size);
}

}  // namespace jge

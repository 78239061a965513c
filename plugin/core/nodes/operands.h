// plugin/core/nodes/operands.h: what the nodes of a program refer to, before and after it is
// loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace jge {

struct Parameter {
  std::string name;
  bool pointer = false;
  bool reads = false;
  bool writes = false;
  std::uint32_t size = 0;  // bytes in the kernel's parameter block
};

// A pointer inside a parameter that is passed by value: a member of a struct.
struct Member {
  std::uint32_t parameter = 0;  // index into Kernel::parameters
  std::uint32_t offset = 0;     // in the parameter, in bytes
  std::string name;
  bool reads = false;
  bool writes = false;
};

struct Kernel {
  std::uint32_t image = 0;  // index into Program::images
  std::string symbol;       // name in the image
  std::string label;        // name the user knows it by
  std::vector<Parameter> parameters;
  std::vector<Member> members;       // pointers inside of parameters, in their order
  std::vector<std::uint32_t> sizes;  // of the parameters, in bytes
};

struct Result {
  std::uint64_t bytes = 0;
  std::uint32_t alias = 0;  // 1 + the argument whose memory it shares, or 0
  bool scratch = false;     // its contents mean nothing after the run
};

// A program's buffers are symbols: the arguments, then the results.
struct Buffers {
  std::vector<std::uint64_t> arguments;  // bytes of each
  std::vector<Result> results;

  // The memory behind a buffer: a result that aliases an argument is the same.
  std::uint32_t space(std::uint32_t buffer) const {
    if (buffer < arguments.size()) return buffer;
    const Result& result = results[buffer - arguments.size()];
    return result.alias != 0 ? result.alias - 1 : buffer;
  }
};

// Where one parameter of one node comes from.
struct Binding {
  std::uint32_t buffer = 0;  // pointer: an argument, or argument count + result
  bool reads = false;        // pointer: what the node does with the memory; value: neither
  bool writes = false;
  std::uint64_t offset = 0;  // pointer: into the buffer; value: into Program::values
  std::uint64_t bytes = 0;   // pointer: how much of the buffer the node may touch; value: its size

  bool pointer() const { return reads || writes; }
  std::byte* address(std::span<void* const> buffers) const {
    return static_cast<std::byte*>(buffers[buffer]) + offset;
  }
  CUdeviceptr device_address(std::span<void* const> buffers) const {
    return reinterpret_cast<std::uintptr_t>(address(buffers));
  }
};

// What the nodes of a loaded program are bound with, beside their addresses.
struct Loaded {
  CUcontext context = nullptr;
  std::span<const Kernel> kernels;
  std::span<const CUfunction> functions;  // of the kernels
  const std::byte* values = nullptr;
  std::uint32_t max_parameters = 0;  // of a kernel
  std::uint32_t max_bytes = 0;       // of the parameters of a kernel that has members
};

}  // namespace jge

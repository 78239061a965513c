// plugin/core/program/program.h: the immutable node list that one custom call carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/program/hazards.h"
#include "core/program/image_bytes.h"

namespace jge {

// A program as it travels in the custom call's attributes. jax_graphenc/program.py writes it; both
// sides change together, and with them kProgramVersion and the custom call's name.
//
// Integers are little-endian; str is a u32 length and bytes; blob is a u64 length and bytes; n * x
// is a u32 count and that many x.
//
// program:   "JGEP", u32 version, str name,
//            n * argument, n * result, n * blob (images), n * kernel, n * node
// argument:  u64 bytes
// result:    u64 bytes, u32 alias (1 + the argument whose memory it shares, or 0),
//            u8 scratch (1: nobody reads it after the run; it shares no memory, and one at most)
// kernel:    u32 image, str symbol, str label, n * parameter
// parameter: str name, u8 kind (0 value, 1 pointer), u8 access (bit 0 reads, bit 1 writes),
//            u32 size in bytes
// node:      u8 1 (kernel), u32 kernel, u32 grid[3], u32 block[3], u32 cluster[3],
//            u32 shared bytes, u8 flags (bit 0 cooperative), then a value or a pointer for each
//            parameter; or
//            u8 2 (memset), u8 element bytes (1, 2 or 4), u32 value, the pointer that is written
//            (bytes and offset are multiples of the element's); or
//            u8 3 (memcpy), the pointer that is read, the pointer that is written (as many bytes,
//            none of them the same)
// value:     its bytes
// pointer:   u8 side (0 argument, 1 result), u32 index, u64 offset, u64 bytes
inline constexpr std::uint32_t kProgramVersion = 1;

// More nodes than this are refused: edges take memory that grows with their square.
inline constexpr std::uint32_t kMaxNodes = 32768;

struct Parameter {
  std::string name;
  bool pointer = false;
  bool reads = false;
  bool writes = false;
  std::uint32_t size = 0;  // bytes in the kernel's parameter block
};

struct Kernel {
  std::uint32_t image = 0;  // index into Program::images
  std::string symbol;       // name in the image
  std::string label;        // name the user knows it by
  std::vector<Parameter> parameters;
  std::vector<std::uint32_t> sizes;  // of the parameters, in bytes
};

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
  friend bool operator==(const Dim3&, const Dim3&) = default;
};

// "(4, 1, 1)".
std::string text(const Dim3& dim);

// Where one parameter of one node comes from.
struct Binding {
  std::uint32_t buffer = 0;  // pointer: an argument, or argument count + result
  bool reads = false;        // pointer: what the node does with the memory; value: neither
  bool writes = false;
  std::uint64_t offset = 0;  // pointer: into the buffer; value: into Program::values
  std::uint64_t bytes = 0;   // pointer: how much of the buffer the node may touch; value: its size

  bool pointer() const { return reads || writes; }
};

struct KernelNode {
  std::uint32_t kernel = 0;  // index into Program::kernels
  Dim3 grid, block, cluster;
  std::uint32_t shared_bytes = 0;  // dynamic shared memory per block
  bool cooperative = false;
};

struct MemsetNode {
  std::uint32_t element_bytes = 1;
  std::uint32_t value = 0;  // of each element
};

struct MemcpyNode {};

using Node = std::variant<KernelNode, MemsetNode, MemcpyNode>;

struct Result {
  std::uint64_t bytes = 0;
  std::uint32_t alias = 0;  // 1 + the argument whose memory it shares, or 0
  bool scratch = false;     // its contents mean nothing after the run
};

class Program {
 public:
  // Decodes and validates bytes that anybody may have written; throws Error (invalid_argument).
  static std::shared_ptr<const Program> decode(std::string_view bytes);

  std::string name;
  std::vector<std::uint64_t> arguments;  // bytes of each
  std::vector<Result> results;
  std::vector<std::shared_ptr<const ImageBytes>> images;
  std::vector<Kernel> kernels;
  std::vector<Node> nodes;
  std::vector<std::byte> values;  // by-value parameters, which drivers copy by the byte
  std::uint32_t max_parameters = 0;
  std::uint64_t bytes = 0;               // that the nodes touch, each counted once
  std::optional<std::uint32_t> scratch;  // the buffer that is scratch memory

  // Of node i: of a kernel, one per parameter; of a memset, the target; of a memcpy, source and
  // target.
  std::span<const Binding> bindings(std::size_t i) const {
    return {bindings_.data() + first_binding_[i], first_binding_[i + 1] - first_binding_[i]};
  }

  // Nodes that node i waits for, ascending; known before any address is.
  std::span<const std::uint32_t> dependencies(std::size_t i) const {
    return {edges_.data() + first_edge_[i], first_edge_[i + 1] - first_edge_[i]};
  }

  // What node i's dependencies come from, by `i`: recorded again, since only who describes a
  // program wants to know. Of each, `access` counts the node's pointers.
  std::vector<std::vector<Conflict>> conflicts() const;

  // The nodes in the order and in the groups, of whole levels of the DAG, that become a graph each.
  // A group is full with `max_nodes`, which is soft: a level is never split.
  std::vector<std::vector<std::uint32_t>> cut(std::uint32_t max_nodes) const;

 private:
  class Decoder;

  // The memory behind a buffer: a result that aliases an argument is the same.
  std::uint32_t space(std::uint32_t buffer) const;
  void record();
  void accesses(std::size_t node, std::vector<Access>& out) const;

  std::vector<Binding> bindings_;
  std::vector<std::size_t> first_binding_{0};
  std::vector<std::uint32_t> edges_;
  std::vector<std::size_t> first_edge_;
};

}  // namespace jge

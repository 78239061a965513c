// plugin/core/program/program.h: the immutable node list that one custom call carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/nodes/nodes.h"
#include "core/nodes/operands.h"
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
//            u8 scratch (1: its contents mean nothing after the run; it shares no
//            memory, and one at most)
// kernel:    u32 image, str symbol, str label, n * parameter
// kernel, from version 2 on: the same, then n * member
// member:    u32 parameter (a value), u32 offset in bytes, str name, u8 access (as a parameter's);
//            in the order of parameters and offsets, none over another
// parameter: str name, u8 kind (0 value, 1 pointer), u8 access (bit 0 reads, bit 1 writes),
//            u32 size in bytes
// node:      u8 1 (kernel), u32 kernel, u32 grid[3], u32 block[3], u32 cluster[3],
//            u32 shared bytes, u8 flags (bit 0 cooperative), then a value or a pointer for each
//            parameter, then a pointer for each member, whose address is written into the value; or
//            u8 2 (memset), u8 element bytes (1, 2 or 4), u32 value, the pointer that is written
//            (bytes and offset are multiples of the element's); or
//            u8 3 (memcpy), the pointer that is read, the pointer that is written (as many bytes,
//            none of them the same)
// value:     its bytes
// pointer:   u8 side (0 argument, 1 result), u32 index, u64 offset, u64 bytes
//
// A program is written in the oldest version that can hold it, and all versions are read.
inline constexpr std::uint32_t kProgramVersion = 2;

// More nodes than this are refused: edges take memory that grows with their square.
inline constexpr std::uint32_t kMaxNodes = 32768;

// Into so many graphs a program is cut at most: each takes a launch, and the device is busy with
// the first long before the last is launched.
inline constexpr std::uint32_t kMaxGroups = 64;

class Program : public Buffers {
 public:
  // Decodes and validates bytes of any origin; throws Error (invalid_argument).
  static std::shared_ptr<const Program> decode(std::string_view bytes);

  std::string name;
  std::vector<std::shared_ptr<const ImageBytes>> images;
  std::vector<Kernel> kernels;
  std::vector<Node> nodes;
  std::vector<std::byte> values;  // by-value parameters, which drivers copy by the byte
  std::uint32_t max_parameters = 0;
  std::uint32_t max_bytes = 0;           // of the parameters of a kernel that has members
  std::uint64_t bytes = 0;               // that the nodes touch, each counted once
  std::optional<std::uint32_t> scratch;  // the buffer that is scratch memory

  // Of node i: of a join, none; of a kernel, one per parameter, then one per member; of a memset,
  // the target; of a memcpy, source and target.
  std::span<const Binding> bindings(std::size_t i) const {
    return {bindings_.data() + first_binding_[i], first_binding_[i + 1] - first_binding_[i]};
  }

  // The image whose variables node i may write, or null. Such nodes are ordered among themselves.
  const ImageBytes* variables(std::size_t i) const;

  // Nodes that node i waits for, ascending; known before any address is.
  Edges dependencies(std::size_t i) const {
    return {edges_.data() + first_edge_[i], first_edge_[i + 1] - first_edge_[i]};
  }

  // What node i's dependencies come from, by `i`: recorded again, since only a
  // description of the program needs them. Of each, `access` counts the node's pointers; one more
  // stands for its module's variables.
  std::vector<std::vector<Conflict>> conflicts() const;

  // The nodes in the order and in the groups, of whole levels of the DAG, that become a graph each.
  // A group is full with `max_nodes`, or with more where that would make more than kMaxGroups. Both
  // are soft: a level is never split.
  std::vector<std::vector<std::uint32_t>> cut(std::uint32_t max_nodes) const;

 private:
  class Decoder;

  void record();
  void accesses(std::size_t node, std::vector<Access>& out) const;

  std::vector<std::uint32_t> modules_;  // by image: the space of its variables
  std::vector<Binding> bindings_;
  std::vector<std::size_t> first_binding_{0};
  std::vector<std::uint32_t> edges_;
  std::vector<std::size_t> first_edge_;
};

}  // namespace jge

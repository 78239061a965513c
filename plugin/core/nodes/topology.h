// plugin/core/nodes/topology.h: what two graphs must share for the executable of one to run the
// other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/scratch.h"
#include "core/nodes/edges.h"

namespace jge {

// Two lanes of multiply and rotate over 64-bit words: enough to tell graphs apart quickly; equality
// is decided by comparing them whole.
struct Hash128 {
  std::uint64_t low = 0x9e3779b97f4a7c15, high = 0xc2b2ae3d27d4eb4f;

  void mix(std::uint64_t word) {
    low = (low ^ word) * 0xff51afd7ed558ccd;
    low ^= low >> 32;
    high = (high + word) * 0xc4ceb9fe1a85ec53;
    high ^= high >> 29;
  }
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// Nodes, their kinds and the attributes that an executable graph cannot change, and the edges. Not
// the functions, launch dimensions, arguments, addresses and sizes: those are patched. Each kind
// adds its own nodes.
class Topology {
 public:
  // Adds the next node (numbered from 0): `head` has its kind in the low byte and attributes above,
  // `more` what attributes it has besides, in as many words as `head` tells.
  void add(std::uint32_t head, Edges edges, std::span<const std::uint64_t> more = {});

  // For a node that no graph of this topology can be patched for.
  void forbid_updates() { updatable_ = false; }
  // Whether an executable of it can be patched for another graph of it, and so is worth keeping.
  bool updatable() const { return updatable_; }

  std::uint32_t size() const { return size_; }
  const Hash128& hash() const { return hash_; }

  // Forgets all nodes and keeps the memory.
  void clear();

  friend bool operator==(const Topology& a, const Topology& b) {
    return a.hash_ == b.hash_ && std::ranges::equal(a.words(), b.words());
  }

 private:
  std::span<const std::uint64_t> words() const { return {words_.data(), words_.size()}; }

  std::uint32_t size_ = 0;
  bool updatable_ = true;
  Hash128 hash_;
  Scratch<std::uint64_t> words_;  // the nodes, one after the other; see add()
};

}  // namespace jge

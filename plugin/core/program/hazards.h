// plugin/core/program/hazards.h: which earlier nodes a node must wait for, from the memory it
// touches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/scratch.h"
#include "core/nodes/edges.h"

namespace jge {

// Bytes [begin, end) of one address space that a node reads, writes, or both. Spaces never overlap:
// a program's buffers are one space each, and so are the variables of its modules; work on real
// addresses uses space 0, and kVariables, where a byte at its image's address stands for a
// module's.
struct Access {
  std::uint32_t space = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool reads = false;
  bool writes = false;
  friend bool operator==(const Access&, const Access&) = default;
};
inline constexpr std::uint32_t kVariables = 1;

// Why a node waits for an earlier one.
enum class Hazard : std::uint8_t { read_after_write, write_after_read, write_after_write };

// A range of memory that makes a node wait for an earlier one.
struct Conflict {
  std::uint32_t on = 0;      // the earlier node
  std::uint32_t access = 0;  // of the later one, by its position among those it was added with
  Hazard hazard = Hazard::read_after_write;  // of an access that reads and writes: that it reads
  std::uint64_t begin = 0, end = 0;
  friend bool operator==(const Conflict&, const Conflict&) = default;
};

// Read-after-write, write-after-read and write-after-write edges between the nodes added so far,
// transitively reduced. The same accesses in the same order always give the same edges. Throws
// Error (invalid_argument) when they exceed a fixed bound, so that hostile input exhausts
// nothing.
class Hazards {
 public:
  // With `joins`, nodes of its own stand before an added node where many wait for the same many:
  // each writer's slice of what all of many nodes read, say. They are numbered with the others.
  explicit Hazards(bool joins = false) : joins_(joins) {}

  // Adds the next node (numbered from 0) and returns the nodes it depends on, ascending. The result
  // is valid until the next call.
  Edges add(std::span<const Access> accesses);

  // What the joins before the node added last wait for, each as its edges.
  std::span<const std::vector<std::uint32_t>> joins() const { return made_; }

  // Adds a node that later nodes do not see: it waits for what was added before, and what must
  // wait for it waits for a join.
  Edges add_apart(std::span<const Access> accesses);

  // Adds a node that stands for the nodes added apart from `first` on: it waits for all of them,
  // and later nodes meet their accesses in it.
  Edges add_join(std::uint32_t first, std::span<const Access> accesses);

  // Length of the longest path that ends at each node, in edges.
  std::span<const std::uint32_t> levels() const { return levels_; }

  std::uint32_t size() const { return static_cast<std::uint32_t>(levels_.size()); }

  // How many bytes the nodes touch, each counted once; nodes added apart count with their join.
  std::uint64_t bytes() const { return bytes_; }

  // From now on, what the edges of each added node come from is appended there.
  void watch(std::vector<Conflict>* conflicts) { conflicts_ = conflicts; }

  // Forgets all nodes and keeps the memory.
  void clear();

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  // Edges and readers: 8 bytes each.
  static constexpr std::size_t kMaxLinks = std::size_t{1} << 22;
  // So many nodes to wait for are worth a join, if more than one node has to.
  static constexpr std::size_t kMany = 64;
  static constexpr std::size_t kMaxCovers = 64;  // of a space

  // A range in which every byte has the same last writer and the same readers since.
  struct Segment {
    std::uint64_t begin, end;
    std::uint32_t writer;   // node, or kNone
    std::uint32_t readers;  // head of a list in links_, or kNone
  };
  struct Link {
    std::uint32_t node, next;
  };
  // A range of many segments that nodes read as a whole.
  struct Cover {
    std::uint64_t begin, end;
    std::uint32_t join;     // waits for all its writers; kNone after a write
    std::uint32_t readers;  // of all of it, those that are not in its segments' lists
  };

  void prepare(const Access& access);
  void join_readers(std::uint32_t space, std::uint32_t readers);
  void join_writers(const Access& access);
  std::uint32_t joined(const std::vector<std::uint32_t>& nodes);
  bool is_long(std::uint32_t readers) const;
  std::vector<std::uint32_t> listed(std::uint32_t readers) const;
  Cover* cover_of(const Access& access);
  void wait_for_covers(const Access& access, std::uint32_t position, std::uint32_t node);
  void wait_for_readers(std::uint32_t readers, const Access& access, std::uint32_t position,
                        std::uint64_t begin, std::uint64_t end, std::uint32_t node);
  void look(const Access& access, std::uint32_t position, std::uint32_t node);
  void touch(const Access& access, std::uint32_t position, std::uint32_t node);
  static std::vector<Segment>::iterator split(std::vector<Segment>& segments,
                                              std::vector<Segment>::iterator it, std::uint64_t at);
  void wait_for(const Segment& segment, const Access& access, std::uint32_t position,
                std::uint32_t node);
  void note(const Segment& segment, const Access& access, std::uint32_t position,
            std::uint32_t node);
  void depend(std::uint32_t on);
  bool comes_before(std::uint32_t a, std::uint32_t b) const {
    return row_[b] != row_[b + 1] && before_.data()[row_[b] + a / 64] >> (a % 64) & 1;
  }
  Edges finish(std::uint32_t node);
  void reduce(std::uint32_t node);

  std::vector<std::vector<Segment>> spaces_;  // each sorted by begin, without overlap
  std::vector<Link> links_;
  bool joins_;
  std::vector<std::vector<Cover>> covers_;  // by space; none without joins
  std::vector<std::uint32_t> waited_for_;   // long lists of readers that a node has waited for
  std::vector<std::vector<std::uint32_t>> made_;  // the joins before the last node
  std::size_t edges_ = 0;
  std::uint64_t bytes_ = 0;
  std::vector<std::uint32_t> dependencies_;
  std::vector<std::uint32_t> levels_;
  std::uint32_t latest_ = 0;  // of dependencies_, if there are any
  std::vector<Conflict>* conflicts_ = nullptr;
  // Bit j of row i: node j comes before node i. Row i, which ends where the next begins, has
  // i / 64 + 1 words, or none.
  Scratch<std::uint64_t> before_;
  std::vector<std::size_t> row_{0};
};

}  // namespace jge

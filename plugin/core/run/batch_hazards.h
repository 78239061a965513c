// plugin/core/run/batch_hazards.h: hazards of batches, which mostly repeat.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/nodes/edges.h"
#include "core/program/hazards.h"

namespace jge {

// Hazards with a memory of the last few batches: while a batch repeats one of them node by node,
// its edges are read from there. At the first difference the hazards catch up.
class BatchHazards {
 public:
  // As those of Hazards.
  Edges add(std::span<const Access> accesses) { return next(How::plain, 0, accesses); }
  Edges add_apart(std::span<const Access> accesses) { return next(How::apart, 0, accesses); }
  Edges add_join(std::uint32_t first, std::span<const Access> accesses) {
    return next(How::join, first, accesses);
  }

  // What they returned for a node of the batch.
  Edges dependencies(std::size_t node) const {
    const std::size_t begin = batch_->edges_begin(node);
    return {batch_->edges.data() + begin, batch_->steps[node].edges_end - begin};
  }

  std::uint32_t size() const { return size_; }
  // How many bytes the first nodes touch, or all do; each counted once.
  std::uint64_t bytes(std::size_t nodes) const {
    return nodes > 0 ? batch_->steps[nodes - 1].bytes : 0;
  }
  std::uint64_t bytes() const { return bytes(size_); }
  // Of the node added last; there must be one.
  std::uint32_t level() const { return batch_->steps[size_ - 1].level; }

  // Ends the batch.
  void clear();

 private:
  // As many as a long chain is cut into; comparing with their first nodes is cheap.
  static constexpr std::size_t kBatches = 16;

  enum class How : std::uint32_t { plain, apart, join };
  struct Step {
    How how;
    std::uint32_t first;  // of a join
    std::size_t accesses_end, edges_end;
    std::uint64_t bytes;  // up to here
    std::uint32_t level;
  };
  struct Batch {
    std::vector<Step> steps;
    std::vector<Access> accesses;
    std::vector<std::uint32_t> edges;

    std::size_t accesses_begin(std::size_t step) const {
      return step > 0 ? steps[step - 1].accesses_end : 0;
    }
    std::size_t edges_begin(std::size_t step) const {
      return step > 0 ? steps[step - 1].edges_end : 0;
    }
    // Whether it goes on like this at a step.
    bool has(std::size_t step, How how, std::uint32_t first,
             std::span<const Access> accesses) const;
  };

  Edges next(How how, std::uint32_t first, std::span<const Access> accesses);
  Edges compute(How how, std::uint32_t first, std::span<const Access> accesses);
  void find(How how, std::uint32_t first, std::span<const Access> accesses);
  void catch_up();

  std::array<Batch, kBatches> batches_;
  std::size_t oldest_ = 0;       // of batches_
  Batch* batch_ = &batches_[0];  // that this one repeats, or is noted in
  std::uint32_t size_ = 0;
  bool repeats_ = true;
  Hazards hazards_;  // empty while the batch repeats
};

}  // namespace jge

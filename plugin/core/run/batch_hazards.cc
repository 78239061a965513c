// plugin/core/run/batch_hazards.cc: hazards of batches, which mostly repeat.
#include "core/run/batch_hazards.h"

#include <algorithm>

namespace jge {

inline bool BatchHazards::Batch::has(std::size_t step, How how, std::uint32_t first,
                                     std::span<const Access> other) const {
  if (step >= steps.size() || steps[step].how != how || steps[step].first != first) return false;
  const Access* mine = accesses.data() + accesses_begin(step);
  const Access* end = accesses.data() + steps[step].accesses_end;
  return std::equal(mine, end, other.begin(), other.end());
}

Edges BatchHazards::next(How how, std::uint32_t first, std::span<const Access> accesses) {
  if (size_ == 0) find(how, first, accesses);
  if (repeats_ && batch_->has(size_, how, first, accesses)) {
    return dependencies(size_++);
  }
  if (repeats_) catch_up();
  const auto edges = compute(how, first, accesses);
  Batch& batch = *batch_;
  batch.accesses.insert(batch.accesses.end(), accesses.begin(), accesses.end());
  batch.edges.insert(batch.edges.end(), edges.begin(), edges.end());
  batch.steps.push_back({how, first, batch.accesses.size(), batch.edges.size(), hazards_.bytes(),
                         hazards_.levels().back()});
  ++size_;
  return edges;
}

Edges BatchHazards::compute(How how, std::uint32_t first, std::span<const Access> accesses) {
  switch (how) {
    case How::apart:
      return hazards_.add_apart(accesses);
    case How::join:
      return hazards_.add_join(first, accesses);
    default:
      return hazards_.add(accesses);
  }
}

// The batch that begins like this, or the oldest, to be overwritten.
void BatchHazards::find(How how, std::uint32_t first, std::span<const Access> accesses) {
  for (Batch& batch : batches_) {
    batch_ = &batch;
    if (batch.has(0, how, first, accesses)) return;
  }
  batch_ = &batches_[oldest_++ % kBatches];
}

// Gives the hazards what they have missed and forgets how the batch went on then.
void BatchHazards::catch_up() {
  Batch& batch = *batch_;
  batch.accesses.resize(batch.accesses_begin(size_));
  batch.edges.resize(batch.edges_begin(size_));
  batch.steps.resize(size_);
  repeats_ = false;
  for (std::size_t i = 0; i < size_; ++i) {
    const std::size_t begin = batch.accesses_begin(i);
    const Step& step = batch.steps[i];
    compute(step.how, step.first,
            std::span(batch.accesses).subspan(begin, step.accesses_end - begin));
  }
}

void BatchHazards::clear() {
  size_ = 0;
  if (!repeats_) hazards_.clear();
  repeats_ = true;
}

}  // namespace jge

// plugin/core/program/hazards.cc: which earlier nodes a node must wait for, from the memory it
// touches.
#include "core/program/hazards.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"

namespace jge {

namespace {

bool matters(const Access& access) {
  return access.begin < access.end && (access.reads || access.writes);
}

}  // namespace

Edges Hazards::add(std::span<const Access> accesses) {
  const std::uint32_t node = size();
  dependencies_.clear();
  for (std::uint32_t i = 0; i < accesses.size(); ++i) {
    if (matters(accesses[i])) touch(accesses[i], i, node);
  }
  return finish(node);
}

Edges Hazards::add_apart(std::span<const Access> accesses) {
  const std::uint32_t node = size();
  dependencies_.clear();
  for (std::uint32_t i = 0; i < accesses.size(); ++i) {
    if (matters(accesses[i])) look(accesses[i], i, node);
  }
  return finish(node);
}

Edges Hazards::add_join(std::uint32_t first, std::span<const Access> accesses) {
  const std::uint32_t node = size();
  dependencies_.clear();
  for (std::uint32_t on = first; on < node; ++on) depend(on);
  for (std::uint32_t i = 0; i < accesses.size(); ++i) {
    if (matters(accesses[i])) touch(accesses[i], i, node);
  }
  return finish(node);
}

Edges Hazards::finish(std::uint32_t node) {
  reduce(node);
  edges_ += dependencies_.size();
  if (edges_ + links_.size() > kMaxLinks) {
    throw Error(Code::invalid_argument,
                "too many of its nodes touch the same memory: their order takes more than " +
                    std::to_string(kMaxLinks) + " edges");
  }
  std::uint32_t level = 0;
  for (std::uint32_t on : dependencies_) level = std::max(level, levels_[on] + 1);
  levels_.push_back(level);
  return dependencies_;
}

void Hazards::depend(std::uint32_t on) {
  if (dependencies_.empty() || on > latest_) {
    latest_ = on;
  } else if (on == latest_ || comes_before(on, latest_)) {
    return;  // implied, which leaves one of a chain's
  }
  dependencies_.push_back(on);
}

void Hazards::wait_for(const Segment& segment, const Access& access, std::uint32_t position,
                       std::uint32_t node) {
  if (conflicts_) note(segment, access, position, node);
  if (segment.writer != kNone && segment.writer != node) depend(segment.writer);
  if (!access.writes) return;
  for (std::uint32_t link = segment.readers; link != kNone; link = links_[link].next) {
    if (links_[link].node != node) depend(links_[link].node);
  }
}

// Tells the watcher what `wait_for` waits for.
void Hazards::note(const Segment& segment, const Access& access, std::uint32_t position,
                   std::uint32_t node) {
  const std::uint64_t begin = std::max(segment.begin, access.begin);
  const std::uint64_t end = std::min(segment.end, access.end);
  if (segment.writer != kNone && segment.writer != node) {
    const Hazard hazard = access.reads ? Hazard::read_after_write : Hazard::write_after_write;
    conflicts_->push_back({segment.writer, position, hazard, begin, end});
  }
  if (!access.writes) return;
  for (std::uint32_t link = segment.readers; link != kNone; link = links_[link].next) {
    if (links_[link].node == node) continue;
    conflicts_->push_back({links_[link].node, position, Hazard::write_after_read, begin, end});
  }
}

// Notes what the access must wait for and leaves no trace.
void Hazards::look(const Access& access, std::uint32_t position, std::uint32_t node) {
  if (access.space >= spaces_.size()) return;
  const std::vector<Segment>& segments = spaces_[access.space];
  auto it = std::ranges::upper_bound(segments, access.begin, {}, &Segment::end);
  for (; it != segments.end() && it->begin < access.end; ++it) {
    wait_for(*it, access, position, node);
  }
}

void Hazards::touch(const Access& access, std::uint32_t position, std::uint32_t node) {
  if (access.space >= spaces_.size()) spaces_.resize(access.space + 1);
  std::vector<Segment>& segments = spaces_[access.space];
  auto it = std::ranges::upper_bound(segments, access.begin, {}, &Segment::end);
  if (it != segments.end() && it->begin < access.begin) it = split(segments, it, access.begin) + 1;

  // From segment to segment, making one of each gap, until the whole range consists of them.
  const auto first = it - segments.begin();
  for (std::uint64_t at = access.begin; at < access.end; at = it->end, ++it) {
    if (it == segments.end() || it->begin > at) {
      const std::uint64_t end = it == segments.end() ? access.end : std::min(access.end, it->begin);
      it = segments.insert(it, Segment{at, end, kNone, kNone});
      bytes_ += end - at;
    } else if (it->end > access.end) {
      it = split(segments, it, access.end);
    }
    wait_for(*it, access, position, node);
    const bool listed = it->readers != kNone && links_[it->readers].node == node;
    if (!access.writes && it->writer != node && !listed) {
      links_.push_back({node, it->readers});
      it->readers = static_cast<std::uint32_t>(links_.size() - 1);
    }
  }

  if (access.writes) {
    // One segment replaces all that it covers.
    const auto written = segments.begin() + first;
    *written = {access.begin, access.end, node, kNone};
    if (it - written > 1) segments.erase(written + 1, it);
  }
}

// Cuts the segment in two and returns the left part. They share their list of readers, which is
// sound: a list only ever grows at its head.
std::vector<Hazards::Segment>::iterator Hazards::split(std::vector<Segment>& segments,
                                                       std::vector<Segment>::iterator it,
                                                       std::uint64_t at) {
  Segment left = *it;
  left.end = it->begin = at;
  return segments.insert(it, left);
}

// Leaves the dependencies that no other implies, ascending, and notes what comes before the node.
void Hazards::reduce(std::uint32_t node) {
  if (dependencies_.empty()) {
    row_.push_back(before_.size());  // an empty row: nothing comes before it
    return;
  }
  const std::size_t words = node / 64 + 1;
  std::uint64_t* mine = before_.take(words);
  row_.push_back(before_.size());
  const std::uint64_t* theirs = before_.data() + row_[latest_];
  std::uint64_t* rest = std::copy_n(theirs, row_[latest_ + 1] - row_[latest_], mine);
  std::fill(rest, mine + words, 0);
  mine[latest_ / 64] |= std::uint64_t{1} << (latest_ % 64);
  if (dependencies_.size() == 1) return;

  // Latest first: a node that comes before one already kept adds nothing.
  std::ranges::sort(dependencies_, std::greater<>());
  std::size_t kept = 1;
  for (std::uint32_t on : dependencies_) {
    if (comes_before(on, node)) continue;
    for (std::size_t word = row_[on]; word < row_[on + 1]; ++word) {
      mine[word - row_[on]] |= before_.data()[word];
    }
    mine[on / 64] |= std::uint64_t{1} << (on % 64);
    dependencies_[kept++] = on;
  }
  dependencies_.resize(kept);
  std::ranges::reverse(dependencies_);
}

void Hazards::clear() {
  for (auto& segments : spaces_) segments.clear();
  links_.clear();
  edges_ = 0;
  bytes_ = 0;
  dependencies_.clear();
  levels_.clear();
  before_.clear();
  row_.resize(1);
}

}  // namespace jge

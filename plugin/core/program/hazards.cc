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
  if (joins_) {
    made_.clear();
    for (const Access& access : accesses) {
      if (matters(access)) prepare(access);
    }
  }
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

// Makes the joins that a node with this access is to wait for.
void Hazards::prepare(const Access& access) {
  if (access.space >= spaces_.size()) return;
  covers_.resize(spaces_.size());
  if (!access.writes) return join_writers(access);
  for (Cover& cover : covers_[access.space]) {
    if (cover.begin >= access.end || access.begin >= cover.end || !is_long(cover.readers)) continue;
    links_.push_back({joined(listed(cover.readers)), kNone});
    cover.readers = static_cast<std::uint32_t>(links_.size() - 1);
  }
  const std::vector<Segment>& segments = spaces_[access.space];
  auto it = std::ranges::upper_bound(segments, access.begin, {}, &Segment::end);
  for (; it != segments.end() && it->begin < access.end; ++it) {
    if (is_long(it->readers)) join_readers(access.space, it->readers);
  }
}

// Puts one join in the place of many readers, in all segments that have them, if this is not the
// first node that waits for them.
void Hazards::join_readers(std::uint32_t space, std::uint32_t readers) {
  if (std::ranges::find(waited_for_, readers) == waited_for_.end()) {
    if (waited_for_.size() == kMaxCovers) waited_for_.erase(waited_for_.begin());
    waited_for_.push_back(readers);
    return;
  }
  links_.push_back({joined(listed(readers)), kNone});
  for (Segment& segment : spaces_[space]) {
    if (segment.readers == readers) {
      segment.readers = static_cast<std::uint32_t>(links_.size() - 1);
    }
  }
}

// Makes a join of the writers of many segments, if this is not the first node that reads them all.
void Hazards::join_writers(const Access& access) {
  const std::vector<Segment>& segments = spaces_[access.space];
  const auto begin = std::ranges::upper_bound(segments, access.begin, {}, &Segment::end);
  const auto end = std::ranges::lower_bound(segments, access.end, {}, &Segment::begin);
  if (begin >= end || std::size_t(end - begin) <= kMany) return;
  std::vector<Cover>& covers = covers_[access.space];
  Cover* cover = cover_of(access);
  if (!cover) {
    if (covers.size() < kMaxCovers) covers.push_back({access.begin, access.end, kNone, kNone});
    return;
  }
  if (cover->join != kNone) return;
  std::vector<std::uint32_t> writers;
  for (auto it = begin; it != end; ++it) {
    if (it->writer != kNone) writers.push_back(it->writer);
  }
  std::ranges::sort(writers);
  writers.erase(std::ranges::unique(writers).begin(), writers.end());
  if (writers.size() > kMany) cover->join = joined(writers);
}

// The number of a new node that waits for these.
std::uint32_t Hazards::joined(const std::vector<std::uint32_t>& nodes) {
  const std::uint32_t join = size();
  dependencies_.clear();
  for (std::uint32_t on : nodes) depend(on);
  const Edges edges = finish(join);
  made_.emplace_back(edges.begin(), edges.end());
  return join;
}

bool Hazards::is_long(std::uint32_t readers) const {
  std::size_t length = 0;
  while (readers != kNone && ++length <= kMany) readers = links_[readers].next;
  return length > kMany;
}

std::vector<std::uint32_t> Hazards::listed(std::uint32_t readers) const {
  std::vector<std::uint32_t> nodes;
  for (; readers != kNone; readers = links_[readers].next) nodes.push_back(links_[readers].node);
  return nodes;
}

Hazards::Cover* Hazards::cover_of(const Access& access) {
  if (access.writes || access.space >= covers_.size()) return nullptr;
  for (Cover& cover : covers_[access.space]) {
    if (cover.begin == access.begin && cover.end == access.end) return &cover;
  }
  return nullptr;
}

// Of a write, which ends what their joins stand for.
void Hazards::wait_for_covers(const Access& access, std::uint32_t position, std::uint32_t node) {
  if (access.space >= covers_.size()) return;
  for (Cover& cover : covers_[access.space]) {
    if (cover.begin >= access.end || access.begin >= cover.end) continue;
    cover.join = kNone;
    wait_for_readers(cover.readers, access, position, cover.begin, cover.end, node);
  }
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
  if (access.writes && segment.readers != kNone) {
    wait_for_readers(segment.readers, access, position, segment.begin, segment.end, node);
  }
}

void Hazards::wait_for_readers(std::uint32_t readers, const Access& access, std::uint32_t position,
                               std::uint64_t begin, std::uint64_t end, std::uint32_t node) {
  begin = std::max(begin, access.begin);
  end = std::min(end, access.end);
  for (; readers != kNone; readers = links_[readers].next) {
    const std::uint32_t on = links_[readers].node;
    if (on == node) continue;
    depend(on);
    if (conflicts_) conflicts_->push_back({on, position, Hazard::write_after_read, begin, end});
  }
}

// Tells the watcher which writer `wait_for` waits for.
void Hazards::note(const Segment& segment, const Access& access, std::uint32_t position,
                   std::uint32_t node) {
  const std::uint64_t begin = std::max(segment.begin, access.begin);
  const std::uint64_t end = std::min(segment.end, access.end);
  if (segment.writer != kNone && segment.writer != node) {
    const Hazard hazard = access.reads ? Hazard::read_after_write : Hazard::write_after_write;
    conflicts_->push_back({segment.writer, position, hazard, begin, end});
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
  Cover* const cover = joins_ ? cover_of(access) : nullptr;
  if (cover && cover->join != kNone) {
    depend(cover->join);
    if (conflicts_) {
      conflicts_->push_back(
          {cover->join, position, Hazard::read_after_write, access.begin, access.end});
    }
    links_.push_back({node, cover->readers});
    cover->readers = static_cast<std::uint32_t>(links_.size() - 1);
    return;
  }
  if (joins_ && access.writes) wait_for_covers(access, position, node);
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
  covers_.clear();
  waited_for_.clear();
  made_.clear();
  edges_ = 0;
  bytes_ = 0;
  dependencies_.clear();
  levels_.clear();
  before_.clear();
  row_.resize(1);
}

}  // namespace jge

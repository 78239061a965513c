// plugin/core/hazards.cc: which earlier nodes a node must wait for, from the memory it touches.
#include "core/hazards.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace jge {

namespace {

bool matters(const Access& access) {
  return access.begin < access.end && (access.reads || access.writes);
}

}  // namespace

std::span<const std::uint32_t> Hazards::add(std::span<const Access> accesses) {
  const std::uint32_t node = size();
  dependencies_.clear();
  for (const Access& access : accesses) {
    if (matters(access)) touch(access, node);
  }
  return finish(node);
}

std::span<const std::uint32_t> Hazards::add_apart(std::span<const Access> accesses) {
  const std::uint32_t node = size();
  dependencies_.clear();
  for (const Access& access : accesses) {
    if (matters(access)) look(access, node);
  }
  return finish(node);
}

std::span<const std::uint32_t> Hazards::add_join(std::uint32_t first,
                                                 std::span<const Access> accesses) {
  const std::uint32_t node = size();
  dependencies_.clear();
  for (std::uint32_t on = first; on < node; ++on) dependencies_.push_back(on);
  for (const Access& access : accesses) {
    if (matters(access)) touch(access, node);
  }
  return finish(node);
}

std::span<const std::uint32_t> Hazards::finish(std::uint32_t node) {
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

void Hazards::depend(std::uint32_t on, std::uint32_t node) {
  if (on != kNone && on != node) dependencies_.push_back(on);
}

// Notes what the access must wait for and leaves no trace.
void Hazards::look(const Access& access, std::uint32_t node) {
  if (access.space >= spaces_.size()) return;
  const std::vector<Segment>& segments = spaces_[access.space];
  auto it = std::ranges::upper_bound(segments, access.begin, {}, &Segment::end);
  for (; it != segments.end() && it->begin < access.end; ++it) {
    depend(it->writer, node);
    if (!access.writes) continue;
    for (std::uint32_t link = it->readers; link != kNone; link = links_[link].next) {
      depend(links_[link].node, node);
    }
  }
}

void Hazards::touch(const Access& access, std::uint32_t node) {
  if (access.space >= spaces_.size()) spaces_.resize(access.space + 1);
  std::vector<Segment>& segments = spaces_[access.space];

  // Split the segments that the ends of the range cut.
  auto split = [&](std::uint64_t at) {
    auto it = std::ranges::upper_bound(segments, at, {}, &Segment::begin);
    if (it == segments.begin()) return;
    --it;
    if (it->begin >= at || it->end <= at) return;
    Segment right = *it;
    right.begin = at;
    // Lists are shared from here on, which is sound: a list only ever grows at its head.
    it->end = at;
    segments.insert(it + 1, right);
  };
  split(access.begin);
  split(access.end);

  auto first = std::ranges::lower_bound(segments, access.begin, {}, &Segment::begin);
  auto last = std::ranges::lower_bound(segments, access.end, {}, &Segment::begin);
  look(access, node);

  if (access.writes) {
    // One segment replaces all that it covers.
    const Segment written{access.begin, access.end, node, kNone};
    if (first == last) {
      segments.insert(first, written);
    } else {
      *first = written;
      segments.erase(first + 1, last);
    }
    return;
  }

  // A read: note the reader in every segment, and make segments of the gaps between them.
  std::uint64_t at = access.begin;
  for (std::size_t i = first - segments.begin(); at < access.end; ++i) {
    const bool gap = i == segments.size() || segments[i].begin > at;
    if (gap) {
      const std::uint64_t end =
          i == segments.size() ? access.end : std::min(access.end, segments[i].begin);
      segments.insert(segments.begin() + i, Segment{at, end, kNone, kNone});
    }
    Segment& segment = segments[i];
    if (segment.writer != node) {
      links_.push_back({node, segment.readers});
      segment.readers = static_cast<std::uint32_t>(links_.size() - 1);
    }
    at = segment.end;
  }
}

void Hazards::reduce(std::uint32_t node) {
  // Latest first: a node that comes before one already kept adds nothing.
  std::ranges::sort(dependencies_, std::greater<>());
  auto repeated = std::ranges::unique(dependencies_);
  dependencies_.erase(repeated.begin(), repeated.end());

  row_.push_back(before_.size());
  if (dependencies_.empty()) return;  // an empty row: nothing comes before it
  before_.resize(before_.size() + node / 64 + 1, 0);
  std::uint64_t* mine = before_.data() + row_[node];
  std::size_t kept = 0;
  for (std::uint32_t on : dependencies_) {
    if (mine[on / 64] >> (on % 64) & 1) continue;
    dependencies_[kept++] = on;
    const std::uint64_t* theirs = before_.data() + row_[on];
    const std::size_t words = row_[on + 1] - row_[on];
    for (std::size_t word = 0; word < words; ++word) mine[word] |= theirs[word];
    mine[on / 64] |= std::uint64_t{1} << (on % 64);
  }
  dependencies_.resize(kept);
  std::ranges::reverse(dependencies_);
}

void Hazards::clear() {
  for (auto& segments : spaces_) segments.clear();
  links_.clear();
  edges_ = 0;
  dependencies_.clear();
  levels_.clear();
  before_.clear();
  row_.clear();
}

}  // namespace jge

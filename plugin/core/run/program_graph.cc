// plugin/core/run/program_graph.cc: a loaded program as executable graphs.
#include "core/run/program_graph.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/stats.h"
#include "core/sinks/dot_sink.h"
#include "core/sinks/launch_sink.h"

namespace jge {
ProgramGraph::~ProgramGraph() {
  for (Variant& variant : variants_) end_leases(variant);
}

void ProgramGraph::end_leases(Variant& variant) {
  for (std::weak_ptr<Exec>& leased : variant.execs) {
    if (auto exec = leased.lock()) cache_.release(*exec);
    leased.reset();
  }
  variant.complete = false;
}

void ProgramGraph::cut(std::uint32_t max_ops, std::span<void* const> buffers) {
  for (Variant& variant : variants_) end_leases(variant);
  variants_.clear();
  patched_ = 0;
  segments_.clear();
  const Program& program = program_.program();
  users_.assign(program.arguments.size() + program.results.size(), {});
  std::vector<Place> place(program.nodes.size());
  for (std::vector<std::uint32_t>& nodes : program.cut(max_ops)) {
    const auto number = static_cast<std::uint32_t>(segments_.size());
    Segment& segment = segments_.emplace_back();
    segment.nodes = std::move(nodes);
    for (std::uint32_t position = 0; position < segment.nodes.size(); ++position) {
      place[segment.nodes[position]] = {number, position};
      add_users({number, position});
    }
    order(segment, number, place, buffers);
  }
  execs_.resize(segments_.size());
  max_ops_ = max_ops;
}

// Gives a segment its edges and its topology, once the places of its nodes are known.
void ProgramGraph::order(Segment& segment, std::uint32_t number, const std::vector<Place>& place,
                         std::span<void* const> buffers) {
  std::vector<std::uint32_t> edges;
  for (std::uint32_t i : segment.nodes) {
    // Edges from earlier segments are implied by the stream's order.
    edges.clear();
    for (std::uint32_t on : program_.program().dependencies(i)) {
      if (place[on].segment == number) edges.push_back(place[on].position);
    }
    std::ranges::sort(edges);
    segment.edges.insert(segment.edges.end(), edges.begin(), edges.end());
    segment.first_edge.push_back(segment.edges.size());
    // Addresses are no part of a topology, so any will do.
    std::visit([&](const auto& node) { node.add_to(segment.topology, edges); },
               program_.bind(i, buffers));
  }
}

// Notes which buffers the node there is given the addresses of.
void ProgramGraph::add_users(Place place) {
  const std::uint32_t node = segments_[place.segment].nodes[place.position];
  for (const Binding& binding : program_.program().bindings(node)) {
    if (!binding.pointer()) continue;
    std::vector<Place>& users = users_[binding.buffer];
    if (users.empty() || users.back() != place) users.push_back(place);
  }
}

void ProgramGraph::run(std::span<void* const> buffers, CUstream stream) {
  std::lock_guard lock(mutex_);
  const DeviceInfo& info = program_.device().info();
  const auto max_ops =
      static_cast<std::uint32_t>(graph_limits(info.compute_major, info.compute_minor).max_ops);
  if (max_ops != max_ops_) cut(max_ops, buffers);

  last_run_ = this_run_;
  this_run_ = cache_.now();
  Variant& variant = choose(buffers);
  variant.last_used = ++runs_;
  // Held for the run, so that no eviction takes one away under it.
  hold(variant);
  struct Release {
    std::vector<std::shared_ptr<Exec>>& execs;
    ~Release() {
      for (auto& exec : execs) exec.reset();
    }
  } const release{execs_};

  try {
    const std::size_t count = patches(variant, buffers);
    if (count > program_.program().nodes.size()) {
      patch_all(buffers);
    } else if (count > 0) {
      patch_moved(variant, buffers);
    }
    if (count > 0) variant.last.assign(buffers.begin(), buffers.end());
    variant.complete = true;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      if (dot_wanted()) draw(segments_[s], buffers);
      if (!execs_[s] && !segments_[s].too_small()) {
        variant.execs[s] = execs_[s] = acquire(segments_[s], buffers);
        variant.complete = variant.complete && execs_[s];
      }
      if (execs_[s]) {
        execs_[s]->launch(stream);
        continue;
      }
      LaunchSink sink(program_.device().driver(), stream, false);
      for (std::uint32_t node : segments_[s].nodes) sink.add(program_.bind(node, buffers), {});
      sink.finish();
    }
  } catch (...) {
    // Node parameters are now unknown: drop the execs.
    for (auto& exec : execs_) {
      if (exec) cache_.drop(*exec);
    }
    end_leases(variant);
    throw;
  }
  count_batches(segments_.size(), program_.program().nodes.size(), program_.program().bytes);
}

void ProgramGraph::draw(const Segment& segment, std::span<void* const> buffers) {
  DotSink dot(program_.program().name);
  for (std::uint32_t i = 0; i < segment.nodes.size(); ++i) {
    dot.add(program_.bind(segment.nodes[i], buffers), segment.dependencies(i));
  }
  dot.finish();
}

// The variant that has the fewest nodes to be patched, or a new one, if patches have cost as much
// by now as instantiating it will.
ProgramGraph::Variant& ProgramGraph::choose(std::span<void* const> buffers) {
  const auto add = [&]() -> Variant& {
    patched_ = 0;
    Variant& made = variants_.emplace_back();
    made.execs.resize(segments_.size());
    made.last.assign(users_.size(), nullptr);
    return made;
  };
  if (variants_.empty()) return add();
  Variant* best = nullptr;
  std::size_t fewest = 0;
  for (Variant& variant : variants_) {
    const std::size_t count = patches(variant, buffers);
    if (count == 0) return variant;
    const bool better =
        !best || count < fewest || (count == fewest && variant.last_used < best->last_used);
    if (!better) continue;
    best = &variant;
    fewest = count;
  }
  if (fewest <= kFewPatches || !best->complete) return *best;
  const std::size_t nodes = program_.program().nodes.size();
  patched_ += std::min(fewest, nodes);
  const bool worth_it = patched_ >= kPatchesPerInstantiation * nodes;
  return worth_it && variants_.size() < kMaxVariants && cache_.has_room(nodes) ? add() : *best;
}

// How many nodes are given an address that moved, some counted repeatedly.
std::size_t ProgramGraph::patches(const Variant& variant, std::span<void* const> buffers) const {
  // Mostly none has moved, which is one comparison of memory.
  if (std::equal(buffers.begin(), buffers.end(), variant.last.begin(), variant.last.end())) {
    return 0;
  }
  std::size_t count = 0;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b] != variant.last[b]) count += users_[b].size();
  }
  return count;
}

// Takes the variant's execs for this run.
void ProgramGraph::hold(const Variant& variant) {
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    execs_[s] = variant.execs[s].lock();
    // Before one is acquired, which no other of this run is evicted for.
    if (execs_[s]) cache_.touch(*execs_[s]);
  }
}

void ProgramGraph::patch_moved(const Variant& variant, std::span<void* const> buffers) {
  std::uint64_t patched = 0;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b] == variant.last[b]) continue;
    for (const Place& place : users_[b]) {
      std::shared_ptr<Exec>& exec = execs_[place.segment];
      if (!exec) continue;
      const std::uint32_t node = segments_[place.segment].nodes[place.position];
      try {
        patched += exec->update(place.position, program_.bind(node, buffers));
      } catch (const Error&) {  // the driver refused a change
        count(stats().fallbacks_update_refused);
        cache_.drop(*exec);
        exec.reset();
      }
    }
  }
  if (patched > 0) count(stats().nodes_patched, patched);
}

void ProgramGraph::patch_all(std::span<void* const> buffers) {
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    if (!execs_[s]) continue;
    const auto update = [&](Exec& exec) { return tell(segments_[s], exec, buffers); };
    if (!cache_.patch(*execs_[s], update)) execs_[s].reset();
  }
}

// Tells all nodes of an exec what the segment's are to do; returns how many that changed.
std::uint64_t ProgramGraph::tell(const Segment& segment, Exec& exec,
                                 std::span<void* const> buffers) const {
  std::uint64_t changed = 0;
  for (std::uint32_t i = 0; i < segment.nodes.size(); ++i) {
    changed += exec.update(i, program_.bind(segment.nodes[i], buffers));
  }
  return changed;
}

// One whose nodes do all that the segment's are to do: perhaps one that another program of this
// shape left behind, or this one before it was traced again. Null if the nodes are to be launched
// one by one.
std::shared_ptr<Exec> ProgramGraph::acquire(const Segment& segment,
                                            std::span<void* const> buffers) {
  return cache_.acquire(
      program_.device().driver(), segment.topology,
      [&](Exec& leased) { return tell(segment, leased, buffers); },
      [&](Exec& made) {
        for (std::uint32_t i = 0; i < segment.nodes.size(); ++i) {
          made.add(program_.bind(segment.nodes[i], buffers), segment.dependencies(i));
        }
      },
      last_run_);
}

}  // namespace jge

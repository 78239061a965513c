// plugin/core/run/batch.cc: nodes appended one by one, which go to a stream together.
#include "core/run/batch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/sinks/capture_sink.h"
#include "core/sinks/choice.h"
#include "core/sinks/dot_sink.h"

namespace jge {
namespace {

// Nearly all are of 4 or 8 bytes, which the compiler copies without a call.
std::byte* copy_parameter(const void* from, std::size_t size, std::byte* to) {
  if (size == 8) {
    std::memcpy(to, from, 8);
  } else if (size == 4) {
    std::memcpy(to, from, 4);
  } else {
    std::memcpy(to, from, size);
  }
  return to + size;
}

}  // namespace

inline bool Batch::order(std::span<const Access> accesses, Edges& edges) {
  if (hazards_.size() == 0) {
    limits_ = graph_limits(device_.info().compute_major, device_.info().compute_minor);
  }
  if (concurrent_from_) {
    concurrent_.insert(concurrent_.end(), accesses.begin(), accesses.end());
    edges = hazards_.add_apart(accesses);
    return true;
  }
  const bool full = hazards_.size() >= std::uint32_t(limits_.max_ops) ||
                    hazards_.bytes() >= std::uint64_t(limits_.max_mb) * 1'000'000;
  edges = hazards_.add(accesses);
  // A cut falls only where a new level begins, so independent nodes stay together.
  return !full || hazards_.level() <= depth_;
}

template <class Kind, class... Parts>
inline Kind& Batch::push(const Parts&... parts) {
  depth_ = std::max(depth_, hazards_.level());
  return *std::get_if<Kind>(&nodes_.emplace_back(std::in_place_type<Kind>, parts...));
}

bool Batch::add(const Launch& launch, std::span<const Access> accesses) {
  Edges edges;
  if (!order(accesses, edges)) return false;
  KernelParts& node = push<KernelParts>(*launch.node);
  node.function = launch.function;
  node.label = launch.label;
  node.known = launch.known;
  node.first_parameter = sizes_.size();
  node.parameter_count = launch.sizes.size();
  node.first_value = values_.size();
  std::uint32_t* to = sizes_.take(launch.sizes.size());
  std::uint32_t bytes = 0;
  for (std::uint32_t size : launch.sizes) bytes += * to++ = size;
  node.value_bytes = bytes;
  std::byte* value = values_.take(bytes);
  for (std::size_t i = 0; i < launch.sizes.size(); ++i) {
    value = copy_parameter(launch.parameters[i], launch.sizes[i], value);
  }
  launch.node->add_to(topology_, bytes, edges);
  return true;
}

bool Batch::add(const std::shared_ptr<const ChildGraph>& child, std::span<const Access> accesses) {
  Edges edges;
  if (!order(accesses, edges)) return false;
  children_.push_back(child);
  push<Child>(Child{child.get()}).add_to(topology_, edges);
  return true;
}

void Batch::end_concurrent() {
  const std::uint32_t first = *std::exchange(concurrent_from_, std::nullopt);
  const std::vector<Access> accesses = std::exchange(concurrent_, {});
  if (hazards_.size() == first) return;
  const auto edges = hazards_.add_join(first, accesses);
  push<Join>().add_to(topology_, edges);
}

// Gives all nodes to a sink or to an exec that is being built.
template <class Target>
void Batch::give_all(Target& target) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    std::visit([&](const auto& node) { target.add(bind(node), hazards_.dependencies(i)); },
               nodes_[i]);
  }
}

void Batch::finish(Sink& sink) {
  give_all(sink);
  sink.finish();
}

void Batch::hand_over(CUstream stream) {
  const Driver& driver = device_.driver();
  if (dot_wanted()) {
    DotSink dot("encoder");
    finish(dot);
  }
  if (is_capturing(driver, stream)) {
    CaptureSink sink(driver, stream);
    finish(sink);
  } else if (const Way way = way_of(nodes_.size()); way != Way::graph || !replay(stream)) {
    with_sink(way, driver, stream, "encoder", [this](Sink& sink) { finish(sink); });
  }
  // The hazards may hold one node more, which belongs to the next batch.
  count_batches(1, nodes_.size(), hazards_.bytes(nodes_.size()));
}

// Runs the batch as an executable graph; false if it is to be launched node by node.
bool Batch::replay(CUstream stream) {
  ExecCache& cache = device_.execs();
  const auto exec = cache.acquire(
      device_.driver(), topology_, [this](Exec& leased) { return update(leased); },
      [this](Exec& made) { give_all(made); });
  if (!exec) return false;
  try {
    exec->launch(stream);
  } catch (...) {
    cache.drop(*exec);
    throw;
  }
  cache.release(*exec);
  return true;
}

// Tells the exec's nodes what this batch's are to do; returns how many that changed.
std::uint64_t Batch::update(Exec& exec) {
  std::uint64_t changed = 0;
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    changed += std::visit([&](const auto& node) { return update(exec, i, node); }, nodes_[i]);
  }
  return changed;
}

inline bool Batch::update(Exec& exec, std::uint32_t index, const KernelParts& node) {
  const std::span<const std::byte> values(values_.data() + node.first_value, node.value_bytes);
  if (exec.up_to_date(index, node.function, node.launch, values)) return false;
  return exec.update(index, bind(node));
}

Launch Batch::bind(const KernelParts& node) {
  const std::span<const std::uint32_t> sizes(sizes_.data() + node.first_parameter,
                                             node.parameter_count);
  std::byte* value = values_.data() + node.first_value;
  parameters_.clear();
  for (std::uint32_t size : sizes) {
    parameters_.push_back(value);
    value += size;
  }
  return {node.function, &node.launch, parameters_.data(), sizes, node.label, node.known};
}

void Batch::clear() {
  hazards_.clear();
  topology_.clear();
  depth_ = 0;
  nodes_.clear();
  children_.clear();
  values_.clear();
  sizes_.clear();
  concurrent_from_.reset();
  concurrent_.clear();
}

}  // namespace jge

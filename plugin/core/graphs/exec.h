// plugin/core/graphs/exec.h: an executable graph, and what each of its nodes was told last.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "core/base/handle.h"
#include "core/nodes/nodes.h"
#include "core/nodes/topology.h"

namespace jge {

// Used by one thread at a time. The device's context must be current for all but destruction.
class Exec {
 public:
  explicit Exec(const Driver& driver);

  // Adds the next node.
  void add(const BoundNode& node, Edges edges);
  // After the last node. Throws Error (resource_exhausted) when the device is out of memory.
  void instantiate();

  std::uint32_t size() const { return topology_.size(); }
  const Topology& topology() const { return topology_; }

  // Whether a kernel node was told just this last; `parameters` are their bytes, one after the
  // other.
  bool up_to_date(std::uint32_t node, CUfunction function, const KernelNode& launch,
                  std::span<const std::byte> parameters) const {
    return std::get_if<Launch::Told>(&told_[node])->is(function, launch, parameters, values_);
  }

  // Makes a node do as given, if that differs from what it was told last. Returns whether it did.
  // If it throws, the exec must be dropped: what its nodes would do is no longer known. The node
  // must be of that kind.
  template <class Kind>
  bool update(std::uint32_t index, const Kind& node) {
    if (!node.tell(std::get<typename Kind::Told>(told_[index]), values_)) return false;
    node.update(driver_, exec_.get(), nodes_[index]);
    return true;
  }
  bool update(std::uint32_t index, const BoundNode& node) {
    return std::visit([&](const auto& kind) { return update(index, kind); }, node);
  }

  void launch(CUstream stream);

  // A moment on the cache's clock.
  std::atomic<std::uint64_t> last_used{0};

 private:
  const Driver& driver_;
  Topology topology_;
  Graph graph_;  // the template, whose node handles the exec is patched by
  GraphExec exec_;
  std::vector<CUgraphNode> nodes_;
  std::vector<Told> told_;
  std::vector<std::byte> values_;  // of the launches' parameters
  std::vector<CUgraphNode> wait_for_;
};

}  // namespace jge

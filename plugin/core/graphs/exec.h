// plugin/core/graphs/exec.h: an executable graph, and what each of its nodes was told last.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <variant>
#include <vector>

#include "core/base/handle.h"
#include "core/graphs/topology.h"
#include "core/nodes/launch.h"

namespace jge {

// Used by one thread at a time. The device's context must be current for all but destruction.
class Exec {
 public:
  explicit Exec(const Driver& driver);

  // Adds the next node, which waits for earlier ones.
  void add(const Launch& launch, std::span<const std::uint32_t> dependencies);
  void add(const Memset& memset, std::span<const std::uint32_t> dependencies);
  void add(const Memcpy& memcpy, std::span<const std::uint32_t> dependencies);
  void add_empty(std::span<const std::uint32_t> dependencies);
  void add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies);
  // After the last node. Throws Error (resource_exhausted) when the device is out of memory.
  void instantiate();

  std::uint32_t size() const { return topology_.size(); }
  const Topology& topology() const { return topology_; }

  // Whether a kernel node was told just this last; `parameters` are their bytes, one after the
  // other.
  bool up_to_date(std::uint32_t node, CUfunction function, const KernelNode& launch,
                  std::span<const std::byte> parameters) const {
    const ToldLaunch& told = *std::get_if<ToldLaunch>(&told_[node]);
    return told.is(function, launch) &&
           (parameters.empty() || std::memcmp(parameters_.data() + told.first_parameter,
                                              parameters.data(), parameters.size()) == 0);
  }

  // Makes a node do as given, if that differs from what it was told last. Returns whether it did.
  // If it throws, the exec must be dropped: what its nodes would do is no longer known. The node
  // must be of that kind.
  bool update(std::uint32_t node, const Launch& launch);
  bool update(std::uint32_t node, const Memset& memset) { return update_memory(node, memset); }
  bool update(std::uint32_t node, const Memcpy& memcpy) { return update_memory(node, memcpy); }
  bool update(std::uint32_t node, const BoundNode& bound) {
    return std::visit([&](const auto& one) { return update(node, one); }, bound);
  }

  // Makes a node another graph of the same words.
  void update_child(std::uint32_t node, const ChildGraph& child);

  void launch(CUstream stream);

  // A moment on the cache's clock.
  std::atomic<std::uint64_t> last_used{0};

 private:
  struct ToldLaunch {
    bool is(CUfunction other, const KernelNode& node) const {
      return function == other && grid == node.grid && block == node.block &&
             shared_bytes == node.shared_bytes;
    }

    CUfunction function;
    Dim3 grid, block;
    std::uint32_t shared_bytes;
    std::size_t first_parameter;  // into parameters_
  };

  // What a node was told last; nothing of the kinds that are not compared.
  using Told = std::variant<std::monostate, ToldLaunch, Memset, Memcpy>;

  template <class Bound>
  bool update_memory(std::uint32_t index, const Bound& node);
  std::span<const CUgraphNode> nodes_of(std::span<const std::uint32_t> dependencies);

  const Driver& driver_;
  Topology topology_;
  Graph graph_;  // the template, whose node handles the exec is patched by
  GraphExec exec_;
  std::vector<CUgraphNode> nodes_;
  std::vector<Told> told_;
  std::vector<std::byte> parameters_;  // of the launches
  std::vector<CUgraphNode> wait_for_;
};

}  // namespace jge

// plugin/core/run/batch.h: nodes appended one by one, which go to a stream together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/scratch.h"
#include "core/device/device.h"
#include "core/graphs/topology.h"
#include "core/nodes/child_graph.h"
#include "core/nodes/launch.h"
#include "core/run/batch_hazards.h"

namespace jge {

// Each node waits for the earlier ones whose memory it touches. If anything throws, the batch must
// be cleared.
class Batch {
 public:
  explicit Batch(Device& device) : device_(device) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Adds a kernel; its parameters (the bytes of each) and launch are copied, `label` and `known`
  // must outlive the batch. False if the batch is full and the node begins a new level: then hand
  // over, clear and add it again. An empty batch takes any node.
  bool add(CUfunction function, const KernelNode& node, const std::string& label,
           std::span<const std::span<const std::byte>> parameters, std::span<const Access> accesses,
           const KnownMemory& known);

  // Adds captured work as one node; false as above.
  bool add(const std::shared_ptr<const ChildGraph>& child, std::span<const Access> accesses);

  // Nodes added between these do not wait for each other; what follows waits for all of them. They
  // take turns.
  void begin_concurrent() { concurrent_from_ = hazards_.size(); }
  void end_concurrent();
  bool concurrent() const { return concurrent_from_.has_value(); }

  bool empty() const { return nodes_.empty(); }

  // Gives the nodes to whoever captures the stream, or else to the stream, as an executable graph
  // where that gains. Throws Error; a part may then have been enqueued.
  void hand_over(CUstream stream);

  // Forgets the nodes and keeps the memory.
  void clear();

 private:
  enum class Kind { kernel, empty, child };
  struct Node {
    explicit Node(Kind kind, const KernelNode& launch = {}) : kind(kind), launch(launch) {}

    Kind kind;
    KernelNode launch;
    CUfunction function = nullptr;
    const std::string* label = nullptr;
    KnownMemory known;
    std::size_t first_parameter = 0, parameter_count = 0;  // in sizes_
    std::size_t first_value = 0, value_bytes = 0;          // in values_
    const ChildGraph* child = nullptr;                     // one of children_
  };

  // The edges of the next node; none if it belongs to the next batch.
  std::optional<std::span<const std::uint32_t>> order(std::span<const Access> accesses);
  Node& push(Kind kind, const KernelNode& launch = {});
  Launch bind(const Node& node);
  std::span<const std::byte> values(const Node& node) const {
    return {values_.data() + node.first_value, node.value_bytes};
  }
  template <class Target>
  void give_all(Target& target);
  void draw();
  bool replay(CUstream stream);
  std::uint64_t update(Exec& exec);

  Device& device_;
  BatchHazards hazards_;
  Topology topology_;
  GraphLimits limits_;       // read when a batch begins
  std::uint32_t depth_ = 0;  // the highest level in the batch
  std::vector<Node> nodes_;
  std::vector<std::shared_ptr<const ChildGraph>> children_;
  Scratch<std::byte> values_;     // of the parameters, one after the other
  Scratch<std::uint32_t> sizes_;  // of the parameters
  std::vector<void*> parameters_;
  std::optional<std::uint32_t> concurrent_from_;  // its first node, inside a concurrent region
  std::vector<Access> concurrent_;                // what its nodes touch
};

}  // namespace jge

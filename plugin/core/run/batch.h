// plugin/core/run/batch.h: nodes appended one by one, which go to a stream together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/base/scratch.h"
#include "core/device/device.h"
#include "core/graphs/exec.h"
#include "core/nodes/nodes.h"
#include "core/nodes/topology.h"
#include "core/run/batch_hazards.h"
#include "core/sinks/sink.h"

namespace jge {

// Each node waits for the earlier ones whose memory it touches. If anything throws, the batch must
// be cleared.
class Batch {
 public:
  explicit Batch(Device& device) : device_(device) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Adds a kernel; its parameters and node are copied, its label and what is known of its memory
  // must outlive the batch. False if the batch is full and the node begins a new level: then hand
  // over, clear and add it again. An empty batch takes any node.
  bool add(const Launch& launch, std::span<const Access> accesses);

  // Adds captured work as one node; false as above.
  bool add(const std::shared_ptr<const ChildGraph>& child, std::span<const Access> accesses);

  // Nodes added between these do not wait for each other; what follows waits for all of them. They
  // take turns.
  void begin_concurrent() { concurrent_from_ = hazards_.size(); }
  void end_concurrent();
  bool concurrent() const { return concurrent_from_.has_value(); }

  bool empty() const { return nodes_.empty(); }

  // Adds the nodes to the stream's capture, or else hands them to the stream, as an executable
  // graph where that gains. Throws Error; a part may then have been enqueued.
  void hand_over(CUstream stream);

  // Forgets the nodes and keeps the memory.
  void clear();

 private:
  // A launch, whose parameters are among the batch's.
  struct KernelParts {
    // The rest is set one by one.
    explicit KernelParts(const KernelNode& launch) : launch(launch) {}

    KernelNode launch;
    CUfunction function;
    const std::string* label;
    KnownMemory known;
    std::size_t first_parameter, parameter_count;  // in sizes_
    std::size_t first_value, value_bytes;          // in values_
  };
  // Other kinds are what they are when they are appended; graphs are among children_.
  using Node = std::variant<KernelParts, Child, Join>;

  // Finds the edges of the next node; false if it belongs to the next batch.
  bool order(std::span<const Access> accesses, Edges& edges);
  template <class Kind, class... Parts>
  Kind& push(const Parts&... parts);
  Launch bind(const KernelParts& node);
  template <class Kind>
  const Kind& bind(const Kind& node) {
    return node;
  }
  template <class Target>
  void give_all(Target& target);
  void finish(Sink& sink);
  bool update(Exec& exec, std::uint32_t index, const KernelParts& node);
  template <class Kind>
  bool update(Exec& exec, std::uint32_t index, const Kind& node) {
    return exec.update(index, node);
  }
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

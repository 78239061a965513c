// plugin/core/sinks/sink.h: where a batch of nodes goes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/nodes/child_graph.h"
#include "core/nodes/launch.h"
#include "driver/driver.h"

namespace jge {

// Takes the nodes of one batch, numbered from 0, each after those it depends on. A sink that throws
// may have handed over part of the batch: its stream's work, or the capture, is then incomplete.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void add(const Launch& launch, std::span<const std::uint32_t> dependencies) = 0;
  virtual void add(const Memset& memset, std::span<const std::uint32_t> dependencies) = 0;
  virtual void add(const Memcpy& memcpy, std::span<const std::uint32_t> dependencies) = 0;
  virtual void add_empty(std::span<const std::uint32_t> dependencies) = 0;
  virtual void add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies) = 0;
  // After the last node.
  virtual void finish() = 0;
};

// Straight onto the stream, whose order is stricter than any edges.
class LaunchSink final : public Sink {
 public:
  // With `debug`, synchronizes before the first and after every node, so that a fault names the
  // node that caused it, and warns of reads of outputs that nothing has written.
  LaunchSink(const Driver& driver, CUstream stream, bool debug)
      : driver_(driver), stream_(stream), debug_(debug) {}
  void add(const Launch& launch, std::span<const std::uint32_t> dependencies) override;
  void add(const Memset& memset, std::span<const std::uint32_t> dependencies) override;
  void add(const Memcpy& memcpy, std::span<const std::uint32_t> dependencies) override;
  void add_empty(std::span<const std::uint32_t> dependencies) override;
  void add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies) override;
  void finish() override;

 private:
  template <class Bound>
  void hand_over(const Bound& node);
  template <class Bound>
  void settle_first(const Bound& node);
  template <class Bound>
  void settle(const Bound& node);

  const Driver& driver_;
  CUstream stream_;
  bool debug_;
  std::shared_ptr<std::vector<UnsetRead>> unset_reads_;  // of the launch that is under way
  std::uint64_t launched_ = 0;
};

// Into the graph that somebody else is capturing from the stream. Allocates nothing on the device,
// launches nothing and waits for nothing; equal batches give equal nodes and edges.
class CaptureSink final : public Sink {
 public:
  // The stream must be capturing. Throws Error if the capture has been invalidated.
  CaptureSink(const Driver& driver, CUstream stream);
  void add(const Launch& launch, std::span<const std::uint32_t> dependencies) override;
  void add(const Memset& memset, std::span<const std::uint32_t> dependencies) override;
  void add(const Memcpy& memcpy, std::span<const std::uint32_t> dependencies) override;
  void add_empty(std::span<const std::uint32_t> dependencies) override;
  void add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies) override;
  // The stream's next operation then waits for all nodes that no other waits for.
  void finish() override;

 private:
  std::span<const CUgraphNode> nodes_of(std::span<const std::uint32_t> dependencies);
  void added(CUgraphNode node);

  const Driver& driver_;
  CUstream stream_;
  CUgraph graph_ = nullptr;
  std::vector<CUgraphNode> before_;  // what the stream's next operation would have waited for
  std::vector<CUgraphNode> nodes_;
  std::vector<bool> has_dependents_;
  std::vector<CUgraphNode> scratch_;
};

// Whether the stream is being captured; throws Error if its capture has been invalidated.
bool is_capturing(const Driver& driver, CUstream stream);

}  // namespace jge

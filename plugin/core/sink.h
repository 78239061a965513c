// plugin/core/sink.h: where a batch of nodes goes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/program.h"
#include "driver/driver.h"

namespace jge {

// A kernel node with its addresses bound: what the driver is told.
struct Launch {
  CUfunction function = nullptr;
  const KernelNode* node = nullptr;
  void** parameters = nullptr;  // one pointer per parameter; read during the call only
  const std::string* label = nullptr;
};

// Takes the nodes of one batch, numbered from 0, each after those it depends on.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void add(const Launch& launch, std::span<const std::uint32_t> dependencies) = 0;
  // After the last node. A sink that was not finished leaves nothing behind.
  virtual void finish() {}
};

// Straight onto the stream, whose order is stricter than any edges.
class LaunchSink final : public Sink {
 public:
  LaunchSink(const Driver& driver, CUstream stream, bool debug)
      : driver_(driver), stream_(stream), debug_(debug) {}
  void add(const Launch& launch, std::span<const std::uint32_t> dependencies) override;

 private:
  const Driver& driver_;
  CUstream stream_;
  bool debug_;  // synchronize after every kernel and name the one that failed
};

// Into the graph that somebody else is capturing from the stream. Allocates nothing on the device,
// launches nothing and waits for nothing; equal batches give equal nodes and edges.
class CaptureSink final : public Sink {
 public:
  // The stream must be capturing. Throws Error if the capture has been invalidated.
  CaptureSink(const Driver& driver, CUstream stream);
  void add(const Launch& launch, std::span<const std::uint32_t> dependencies) override;
  void finish() override;

 private:
  const Driver& driver_;
  CUstream stream_;
  CUgraph graph_ = nullptr;
  std::vector<CUgraphNode> before_;  // what the stream's next operation would have waited for
  std::vector<CUgraphNode> nodes_;
  std::vector<bool> has_dependents_;
  std::vector<CUgraphNode> scratch_;
};

}  // namespace jge

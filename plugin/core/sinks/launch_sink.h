// plugin/core/sinks/launch_sink.h: nodes straight onto a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/sinks/sink.h"
#include "driver/driver.h"

namespace jge {

// Edges do not matter: the stream's order is stricter.
class LaunchSink final : public Sink {
 public:
  // With `debug`, synchronizes before the first and after every node, so that a fault names the
  // node that caused it, and warns of reads of outputs that nothing has written.
  LaunchSink(const Driver& driver, CUstream stream, bool debug)
      : driver_(driver), stream_(stream), debug_(debug) {}
  void add(const BoundNode& node, Edges edges) override;
  void finish() override;

 private:
  void watch(const BoundNode& node);
  void settle(const BoundNode& node);

  const Driver& driver_;
  CUstream stream_;
  bool debug_;
  std::shared_ptr<std::vector<UnsetRead>> unset_reads_;  // of the launch that is under way
  std::uint64_t launched_ = 0;
};

}  // namespace jge

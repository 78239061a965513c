// plugin/core/sinks/kernel_times.h: how long each kernel takes, measured with events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/handle.h"
#include "core/sinks/sink.h"

namespace jge {

// Of one node label in one program; milliseconds, as events give them.
struct KernelTime {
  std::string program;
  std::string node;
  std::uint64_t calls = 0;
  double total = 0, least = 0, most = 0;
};

// Of all that was measured since the process began or the last reset, the most expensive first.
std::vector<KernelTime> kernel_times();
void reset_kernel_times();

// Runs a batch in its order, as a graph of its own with an event between any two nodes, and waits
// for it. A graph, because the host hands kernels to a stream more slowly than small ones run, and
// the gaps would be taken for theirs.
class TimedSink final : public Sink {
 public:
  // `program` is what the times are kept under.
  TimedSink(const Driver& driver, CUstream stream, std::string program);
  void add(const Launch& launch, std::span<const std::uint32_t> dependencies) override;
  void add(const Memset& memset, std::span<const std::uint32_t> dependencies) override;
  void add(const Memcpy& memcpy, std::span<const std::uint32_t> dependencies) override;
  void add_empty(std::span<const std::uint32_t> dependencies) override;
  void add_child(const ChildGraph& child, std::span<const std::uint32_t> dependencies) override;
  void finish() override;

 private:
  std::span<const CUgraphNode> last() const { return {&last_, last_ ? 1u : 0u}; }
  void added(CUgraphNode node, const std::string& label);
  void mark();
  void begin();
  void run();

  const Driver& driver_;
  CUstream stream_;
  std::string program_;
  std::vector<Event> events_;  // one before each node and one behind the last
  Graph graph_;                // goes before the events that it records
  CUgraphNode last_ = nullptr;
  std::vector<std::string> labels_;  // of the nodes
};

}  // namespace jge

// plugin/driver/host/stream.h: contexts, streams, events and captures, and the queues behind them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "driver/host/graph.h"

namespace jge::host {

struct Stream;

struct Context : Handle<Kind::kContext> {
  CUdevice device = 0;
  int retained = 0;
  std::vector<Stream*> streams;  // all but the legacy stream
  std::unique_ptr<Stream> legacy;
};

struct Task {
  std::variant<Operation, std::shared_ptr<Record>> work;
  bool wait = false;  // the record is waited for, not made
  std::optional<std::uint64_t> seed{};
};

struct Queue {
  std::deque<Task> tasks;
  std::uint64_t pushed = 0, done = 0;  // positions: tasks so far
  bool busy = false;                   // some thread runs a task of this queue
  std::uint64_t faults = 0, fault_position = 0;
  CUresult fault = CUDA_SUCCESS;  // the last one, for threads that waited for it too
  std::string message;
  CUresult unreported = CUDA_SUCCESS;  // a fault that only waiters of other queues have seen
};

// An ongoing capture; the streams in it share it.
struct Capture {
  std::shared_ptr<Graph> graph;  // null once ended
  CUstreamCaptureMode mode{};
  std::thread::id thread;
  Stream* origin = nullptr;
  bool invalidated = false;
  std::uint64_t id = 0;
};

struct Stream : Handle<Kind::kStream> {
  Context* context = nullptr;
  bool blocking = false;  // ordered with the legacy stream
  std::uint64_t id = 0;
  std::shared_ptr<Queue> queue = std::make_shared<Queue>();
  std::shared_ptr<Capture> capture;
  std::vector<CUgraphNode> dependencies;  // of the next captured node
  std::vector<CUgraphEdgeData> edges;     // zeros, as many, for cuStreamGetCaptureInfo
};

struct Event : Handle<Kind::kEvent> {
  Context* context = nullptr;
  unsigned flags = 0;
  std::shared_ptr<Record> record;
  std::shared_ptr<Capture> capture;  // the one it was last recorded in
  std::vector<CUgraphNode> nodes;
};

Context& current_context();
// Null is the current context's legacy stream, which CUDA forbids while a blocking stream of the
// context is captured: that invalidates the capture, except for plain queries.
Stream& stream_of(CUstream handle, bool invalidates = true);

// Captures the operation, or queues it; runs nothing.
void submit(Stream& stream, Operation operation);
void push(Stream& stream, Task task);
// Runs the queue up to a position, without the lock while a task runs. Throws what failed.
void drain(const std::shared_ptr<Queue>& queue, std::uint64_t position);
// Runs all the context's queues. A failure is reported to the next wait for its stream.
void drain_context(Context& context);

// Fails, and invalidates the capture, where the stream takes no work that cannot be captured.
void require_not_capturing(Stream& stream);
// The same for calls that CUDA calls potentially unsafe during any capture.
void require_no_capture();
// The stream's capture, null when it has none; fails where that is invalidated.
Capture* capture_of(Stream& stream);
void invalidate(Capture& capture);
void leave_capture(Stream& stream);

}  // namespace jge::host

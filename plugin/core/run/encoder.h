// plugin/core/run/encoder.h: gathers the nodes for one stream and commits them in batches.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/handle.h"
#include "core/device/arena.h"
#include "core/device/device.h"
#include "core/device/worker.h"
#include "core/nodes/child_graph.h"
#include "core/run/batch.h"
#include "core/run/program_on_devices.h"

namespace jge {

// One per device and stream. Calls from several threads are taken one after another. The device's
// context must be current. If an append or a commit throws, what was appended since the last commit
// is dropped and the encoder is empty and usable. See docs/plugin_invariants.md, 7 to 10, 14
// and 17.
class Encoder {
 public:
  // A stream of the caller's, which must outlive the encoder's use of it.
  Encoder(Device& device, CUstream stream, Arena arena = {})
      : device_(device), stream_(stream), batch_(device), arena_(std::move(arena)) {}

  Device& device() const { return device_; }
  CUstream stream() const { return stream_; }

  // Appends a kernel; its parameters and node are copied, its label and what is known of its memory
  // must outlive the commit. Commits by itself when the device's graph limits are reached.
  void append(const Launch& launch, std::span<const Access> accesses);

  // Appends captured work as one node.
  void append(std::shared_ptr<const ChildGraph> child, std::span<const Access> accesses);

  // Between these, appended nodes wait for earlier ones but not for each other; what follows waits
  // for all of them. No commit falls inside. Throws Error (invalid_argument) out of turn.
  void begin_concurrent();
  void end_concurrent();

  // Captures what is enqueued on the returned stream until the end, in which it becomes one node,
  // or until it is discarded. Library code may take the stream. It must end on the thread where it
  // began, and may be discarded on any. Throws Error (invalid_argument) out of turn, and whatever
  // made the capture fail; the encoder is not capturing afterwards in any case.
  CUstream begin_capture();
  void end_capture(std::span<const Access> accesses);
  void discard_capture();

  // Appends a whole program and commits: the nodes are on the stream when it returns.
  void run(ProgramOnDevices::OnDevice& program, std::span<void* const> buffers);

  // The buffers of a program's next run, with scratch memory where the encoder will have it.
  std::span<void* const> place(const Program& program, std::span<void* const> buffers);

  // Called on another thread once all that was appended so far is done. Throws Error
  // (invalid_argument) while the stream is being captured.
  void add_completed_handler(CompletionHandler handler);

  // Keeps an object until all that was appended so far is done.
  void keep(std::shared_ptr<void> temporary);

  // Hands all appended nodes to the stream, or to its capture. Throws Error (invalid_argument) if
  // the stream is being captured and handlers or kept objects wait for the work.
  void commit();

  // From now on its runs note that they use the arena, so that another encoder may have it.
  void share_arena() { shares_arena_.store(true, std::memory_order_relaxed); }

  // The arena of an encoder that is about to go, whose work may still use it.
  Arena take_arena() { return std::move(arena_); }

  // Commits, and waits until the work and its handlers are finished, also if the commit fails.
  // Throws Error with what failed; invalid_argument while the stream is being captured.
  void synchronize();

 private:
  template <class Node>
  void add(const Node& node, std::span<const Access> accesses);
  void commit_locked();
  CUresult take_capture(CUgraph* graph);
  void reject_capture(const std::string& why) const;
  void abandon(CUresult result);
  std::span<void* const> with_arena(const Program& program, std::span<void* const> buffers);
  void notify(CUresult result, bool with_event);

  Device& device_;
  CUstream stream_;
  std::mutex mutex_;
  Batch batch_;
  Arena arena_;
  std::atomic<bool> shares_arena_ = false;
  std::vector<void*> placed_;  // a program's buffers, scratch memory in the arena
  Stream capture_stream_;
  bool capturing_ = false;
  // The first failure that the worker met, which waits for the stream before synchronize() may.
  struct Failure {
    std::mutex mutex;
    CUresult result = CUDA_SUCCESS;
    std::string said;
  };
  const std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  std::vector<CompletionHandler> handlers_;
  std::vector<std::shared_ptr<void>> temporaries_;
  const std::shared_ptr<Worker::Queue> completions_ = std::make_shared<Worker::Queue>();
  std::uint64_t last_completion_ = 0;
};

}  // namespace jge

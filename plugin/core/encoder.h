// plugin/core/encoder.h: gathers the nodes for one stream and commits them in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/batch_hazards.h"
#include "core/child_graph.h"
#include "core/device.h"
#include "core/program_on_devices.h"
#include "core/scratch.h"
#include "core/sink.h"
#include "core/topology.h"
#include "core/worker.h"

namespace jge {

// One per device and stream. Calls from several threads are taken one after another. The device's
// context must be current. If an append or a commit throws, what was appended since the last commit
// is dropped and the encoder is empty and usable.
class Encoder {
 public:
  // A stream of the caller's, which must outlive the encoder's use of it.
  Encoder(Device& device, CUstream stream) : device_(device), stream_(stream) {}

  Device& device() const { return device_; }
  CUstream stream() const { return stream_; }

  // Appends a kernel; its parameters (the bytes of each) and launch are copied. Commits by itself
  // when the device's graph limits are reached. `label` must outlive the commit.
  void append(CUfunction function, const KernelNode& node, const std::string& label,
              std::span<const std::span<const std::byte>> parameters,
              std::span<const Access> accesses);

  // Appends captured work as one node.
  void append(std::shared_ptr<const ChildGraph> child, std::span<const Access> accesses);

  // Between these, appended nodes wait for earlier ones but not for each other; what follows waits
  // for all of them. No commit falls inside. Throws Error (invalid_argument) out of turn.
  void begin_concurrent();
  void end_concurrent();

  // Captures what is enqueued on the returned stream until the end, in which it becomes one node,
  // or until it is discarded. Library code may take the stream. Throws Error (invalid_argument) out
  // of turn, and whatever made the capture fail; the encoder is not capturing afterwards in any
  // case.
  CUstream begin_capture();
  void end_capture(std::span<const Access> accesses);
  void discard_capture();

  // Appends a whole program and commits: the nodes are on the stream when it returns.
  void run(ProgramOnDevices::OnDevice& program, std::span<void* const> buffers);

  // Called on another thread once all that was appended so far is done. Throws Error
  // (invalid_argument) while the stream is being captured.
  void add_completed_handler(CompletionHandler handler);

  // Keeps an object until all that was appended so far is done.
  void keep(std::shared_ptr<void> temporary);

  // Hands all appended nodes to the stream.
  void commit();

  // Commits, and waits until the work and its handlers are finished. Throws Error with what failed.
  void synchronize();

 private:
  enum class Kind { kernel, empty, child };
  struct Pending {
    Kind kind;
    CUfunction function = nullptr;
    KernelNode node;
    const std::string* label = nullptr;
    std::size_t first_parameter = 0, parameter_count = 0;  // in sizes_
    std::size_t first_value = 0, value_bytes = 0;          // in values_
    std::shared_ptr<const ChildGraph> child;
  };

  // Commits first if the batch is full and this node begins a new level; returns the edges.
  std::span<const std::uint32_t> order(std::span<const Access> accesses);
  Pending& push(Kind kind);
  Launch bind(const Pending& pending);
  std::span<const std::byte> values(const Pending& pending) const {
    return {values_.data() + pending.first_value, pending.value_bytes};
  }
  template <class Target>
  void give_all(Target& target);

  void commit_locked();
  void draw(const std::string& name);
  void hand_over();
  bool replay();
  bool patch(Exec& exec);
  void abandon(CUresult result);
  void notify(CUresult result, bool with_event);
  void clear();

  Device& device_;
  CUstream stream_;
  std::mutex mutex_;
  BatchHazards hazards_;
  Topology topology_;
  GraphLimits limits_;       // read when a batch begins
  std::uint32_t depth_ = 0;  // the highest level in the batch
  std::vector<Pending> pending_;
  Scratch<std::byte> values_;     // of the parameters, one after the other
  Scratch<std::uint32_t> sizes_;  // of the parameters
  std::vector<void*> parameters_;
  std::optional<std::uint32_t> concurrent_from_;  // its first node, inside a concurrent region
  std::vector<Access> concurrent_;                // what its nodes touch
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
  std::uint64_t last_batch_ = 0;  // of the device's worker
};

}  // namespace jge

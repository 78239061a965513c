// plugin/core/encoder.h: gathers the nodes for one stream and commits them in batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/hazards.h"
#include "core/program_on_devices.h"
#include "core/sink.h"

namespace jge {

// One per device and stream. Calls from several threads are taken one after another. The device's
// context must be current.
class Encoder {
 public:
  // A stream of the caller's, which must outlive the encoder's use of it.
  Encoder(Device& device, CUstream stream) : device_(device), stream_(stream) {}

  Device& device() const { return device_; }
  CUstream stream() const { return stream_; }

  // Appends a kernel; its parameters (the bytes of each) and launch are copied. Commits by itself
  // when the device's graph limits are reached. `label` must outlive the commit. If it throws,
  // everything appended since the last commit is dropped and the encoder is empty and usable.
  void append(CUfunction function, const KernelNode& node, const std::string& label,
              std::span<const std::span<const std::byte>> parameters,
              std::span<const Access> accesses);

  // Appends a whole program and commits: the nodes are on the stream when it returns.
  void run(ProgramOnDevices::OnDevice& program, std::span<void* const> buffers);

  // Hands all appended nodes to the stream. If it throws, they are dropped and the encoder is
  // empty and usable.
  void commit();

 private:
  struct Pending {
    CUfunction function;
    KernelNode node;
    const std::string* label;
    std::size_t first_parameter, parameter_count;
    std::size_t first_edge, edge_count;
  };

  void append_locked(CUfunction function, const KernelNode& node, const std::string& label,
                     std::span<const std::span<const std::byte>> parameters,
                     std::span<const Access> accesses);
  void commit_locked();
  void clear();

  Device& device_;
  CUstream stream_;
  std::mutex mutex_;
  Hazards hazards_;
  std::uint32_t depth_ = 0;     // the highest level in the batch
  std::uint64_t bytes_ = 0;     // of distinct ranges in the batch
  std::vector<Access> ranges_;  // those ranges, sorted by begin
  std::vector<Pending> pending_;
  std::vector<std::uint32_t> edges_;
  std::vector<std::byte> values_;              // parameters
  std::vector<std::size_t> parameter_offset_;  // into values_
  std::vector<std::uint32_t> sizes_;           // of the parameters, beside them
  std::vector<void*> parameters_;
};

}  // namespace jge

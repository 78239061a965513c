// plugin/driver/host_driver.h: the CUDA driver API in software, for machines without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver/driver.h"
#include "host_image.h"

namespace jge {

// The software driver's table. Always complete; needs no hardware. A module is a shared object that
// exports a JgeHostImage (jax_graphenc/include/abi/host_image.h).
//
// Work is queued on its stream and runs when a thread waits for it, on that thread:
// cuStreamSynchronize, cuEventSynchronize, a query, or a synchronous call. So a missing
// synchronization shows as a missing result.
//
// A kernel that fails ends the wait with its error and drops what its stream has queued behind it.
// Unlike CUDA's, the error is reported once and the context stays usable.
const Driver& host_driver();

// Queries and controls of the software driver, for tests and tools. Safe from any thread.
namespace host {

// Devices exist on demand below this ordinal, so that any JAX CPU device has its counterpart.
inline constexpr int kMaxDevices = 1024;

// Runs ready nodes of a graph in a random order drawn from `seed`; nullopt: in the order they were
// added. A missing edge then shows as a wrong number.
void set_order_seed(std::optional<std::uint64_t> seed);

// Skips the execution of kernels, memsets, copies and host functions, so that a benchmark sees the
// callers alone.
void set_execution(bool enabled);

// Makes the nth (from 1) following call of `function` return `result` and do nothing else; 0
// clears. "*" stands for any function but those that destroy, since a handle whose destruction
// fails is lost. Throws std::invalid_argument for an unknown name.
void fail_call(const std::string& function, int nth, CUresult result);

// Names of the functions called since recording was switched on, in order.
void record_calls(bool enabled);
std::vector<std::string> take_calls();

// Handles that were made and not yet destroyed, by kind.
struct LiveHandles {
  std::int64_t streams = 0, events = 0, modules = 0, graphs = 0, execs = 0, allocations = 0;
  friend bool operator==(const LiveHandles&, const LiveHandles&) = default;
};
LiveHandles live_handles();

// Size in bytes of the kernel image that `available` bytes begin with; nullopt where they hold no
// complete ELF64 shared object for this machine. cuModuleLoadData is given no size and trusts the
// image's headers, so check bytes from elsewhere here first.
std::optional<std::size_t> image_size(const void* bytes, std::size_t available);

// The kernels of an image, which is loaded and unloaded again: that runs its static constructors.
// Throws std::invalid_argument where the bytes are no kernel image of this package's ABI.
struct ImageKernel {
  std::string name, type;            // as JgeHostKernel has them
  std::vector<JgeHostParam> params;  // bytes
};
std::vector<ImageKernel> image_kernels(std::string_view image);

// What the kernel that failed last on this thread's last wait said ("saxpy: assertion `n > 0'
// failed ..."); empties the message.
std::string take_fault();

// See Driver::expect: of this thread's next launch.
void expect(std::span<const Extent> extents, std::shared_ptr<std::vector<UnsetRead>> reads);

}  // namespace host
}  // namespace jge

// plugin/driver/host/operations.h: what a stream queues and a graph node holds.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "driver/driver.h"
#include "driver/host/module.h"

namespace jge::host {

// The values of a kernel's parameters, packed once and shared by every copy of the operation.
struct Arguments {
  struct alignas(64) Chunk {
    std::byte bytes[64];
  };
  std::vector<Chunk> block;
  std::vector<void*> pointers;  // into block, as cuLaunchKernel takes them
};

// The memory that a launch may use, and where the reads of unset memory are listed.
struct Expected {
  std::vector<Extent> extents;
  std::shared_ptr<std::vector<UnsetRead>> unset_reads;
};

struct KernelOp {
  Function* function = nullptr;
  std::shared_ptr<Module> module;  // keeps the code loaded
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes = 0;
  std::shared_ptr<const Arguments> arguments;
  Expected expected;
  std::array<std::uint32_t, 3> cluster{};  // 0: not set
  int priority = 0;
};
struct MemsetOp {
  CUDA_MEMSET_NODE_PARAMS params{};
};
struct MemcpyOp {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t bytes = 0;
  CUmemorytype to_type = CU_MEMORYTYPE_UNIFIED, from_type = CU_MEMORYTYPE_UNIFIED;
};
struct Graph;
struct ChildOp {
  std::shared_ptr<Graph> graph;
};
struct EmptyOp {};
struct HostOp {
  CUhostFn function = nullptr;
  void* data = nullptr;
};

// Device memory, freed with its last owner.
struct Memory {
  explicit Memory(std::size_t bytes);  // throws Failure
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  CUdeviceptr pointer = 0;
};

// These only own the memory: it lives as long as a graph that allocates it, or as work queued
// before it is freed.
struct AllocOp {
  std::shared_ptr<const Memory> memory;
};
struct FreeOp {
  std::shared_ptr<const Memory> memory;
};

// One recording of an event: its place in a queue, or none in a graph, and when it was reached.
struct Queue;
struct Record {
  std::shared_ptr<Queue> queue;
  std::uint64_t position = 0;
  std::atomic<std::int64_t> time{0};  // nanoseconds of the steady clock; 0: not yet
};
std::int64_t now();
struct EventOp {
  std::shared_ptr<Record> record;  // the event's, until it is recorded elsewhere
};

using Operation =
    std::variant<KernelOp, MemsetOp, MemcpyOp, ChildOp, EmptyOp, HostOp, AllocOp, FreeOp, EventOp>;

// Each checks the parameters, and throws Failure.
KernelOp kernel_op(Function& function, const std::array<std::uint32_t, 3>& grid,
                   const std::array<std::uint32_t, 3>& block, std::uint32_t shared_bytes,
                   void** params, void** extra);
KernelOp kernel_op(const CUDA_KERNEL_NODE_PARAMS& params);
void set_attribute(KernelOp& op, CUlaunchAttributeID id, const CUlaunchAttributeValue& value);
MemsetOp memset_op(const CUDA_MEMSET_NODE_PARAMS& params);
MemcpyOp memcpy_op(const CUDA_MEMCPY3D& params);

// Runs one kernel on this thread, without the driver's lock. `message` receives a failure's text.
CUresult run_kernel(const KernelOp& op, std::string& message);

// The same for any operation; the nodes of a graph in an order drawn from `seed`, if there is one.
CUresult execute(const Operation& operation, std::optional<std::uint64_t> seed,
                 std::string& message);

}  // namespace jge::host

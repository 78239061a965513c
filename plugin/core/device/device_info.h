// plugin/core/device/device_info.h: what a device can do, and how large a graph it is given at
// once.
#pragma once

#include <cstdint>
#include <string>

#include "driver/driver.h"

namespace jge {

// When a batch of nodes is committed. Soft: a level of the DAG is never split.
struct GraphLimits {
  int max_ops = 0;              // nodes
  int max_mb = 0;               // megabytes (10^6) of distinct buffers
  const char* ops_source = "";  // where max_ops came from: "table" or "option"
  const char* mb_source = "";
};

// The table's limits for a compute capability, overridden by the options that are set.
GraphLimits graph_limits(int compute_major, int compute_minor);

// X(field, CUdevice_attribute suffix): the integers asked of the driver one by one.
#define JGE_DEVICE_ATTRIBUTES(X)                                            \
  X(compute_major, COMPUTE_CAPABILITY_MAJOR)                                \
  X(compute_minor, COMPUTE_CAPABILITY_MINOR)                                \
  X(multiprocessors, MULTIPROCESSOR_COUNT)                                  \
  X(warp_size, WARP_SIZE)                                                   \
  X(clock_khz, CLOCK_RATE)                                                  \
  X(memory_clock_khz, MEMORY_CLOCK_RATE)                                    \
  X(l2_bytes, L2_CACHE_SIZE)                                                \
  X(shared_memory_per_block, MAX_SHARED_MEMORY_PER_BLOCK)                   \
  X(shared_memory_per_block_optin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)       \
  X(shared_memory_per_multiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) \
  X(registers_per_block, MAX_REGISTERS_PER_BLOCK)                           \
  X(registers_per_multiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR)         \
  X(max_threads_per_block, MAX_THREADS_PER_BLOCK)                           \
  X(max_threads_per_multiprocessor, MAX_THREADS_PER_MULTIPROCESSOR)         \
  X(max_block_x, MAX_BLOCK_DIM_X)                                           \
  X(max_block_y, MAX_BLOCK_DIM_Y)                                           \
  X(max_block_z, MAX_BLOCK_DIM_Z)                                           \
  X(max_grid_x, MAX_GRID_DIM_X)                                             \
  X(max_grid_y, MAX_GRID_DIM_Y)                                             \
  X(max_grid_z, MAX_GRID_DIM_Z)                                             \
  X(cluster_launch, CLUSTER_LAUNCH)                                         \
  X(cooperative_launch, COOPERATIVE_LAUNCH)                                 \
  X(concurrent_managed_access, CONCURRENT_MANAGED_ACCESS)                   \
  X(host_native_atomics, HOST_NATIVE_ATOMIC_SUPPORTED)                      \
  X(managed_memory, MANAGED_MEMORY)                                         \
  X(memory_pools, MEMORY_POOLS_SUPPORTED)

struct DeviceInfo {
  int ordinal = 0;
  std::string driver;  // "cuda" or "host"
  std::string name;
  int driver_version = 0;          // as cuDriverGetVersion counts: 1000 * major + 10 * minor
  std::uint64_t memory_total = 0;  // bytes
#define JGE_DECLARE(field, attribute) int field = 0;
  JGE_DEVICE_ATTRIBUTES(JGE_DECLARE)
#undef JGE_DECLARE
  // Blocks in the largest cluster that every device of this kind runs; 1 without clusters.
  int max_cluster = 1;
};

// Needs no context and makes none.
DeviceInfo query_device(const Driver& driver, int ordinal);

// Bytes free on the device. Uses the device's primary context, which CUDA needs for this answer.
std::uint64_t query_free_memory(const Driver& driver, int ordinal);

}  // namespace jge

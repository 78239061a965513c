// plugin/core/device/limits.cc: what a function takes of a device, and whether a launch fits.
#include "core/device/limits.h"

#include <cstdint>

#include "core/base/error.h"

namespace jge {
namespace {

int attribute(const Driver& driver, CUfunction function, CUfunction_attribute which) {
  int value = 0;
  JGE_CALL(driver, cuFuncGetAttribute, &value, which, function);
  return value;
}

// What of a block's shared memory is left for a function to ask for when it is launched.
std::uint64_t dynamic_shared_limit(const DeviceInfo& device, int fixed) {
  return device.shared_memory_per_block_optin > fixed
             ? std::uint64_t(device.shared_memory_per_block_optin - fixed)
             : 0;
}

// Always to the limit: another thread may be asking for more on the same function.
void opt_in(const Driver& driver, const DeviceInfo& device, CUfunction function, int fixed,
            std::uint64_t dynamic) {
  if (fixed + dynamic <= std::uint64_t(device.shared_memory_per_block)) return;
  JGE_CALL(driver, cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
           int(dynamic_shared_limit(device, fixed)));
}

// What a node asks of a device, for the messages.
struct Asked {
  [[noreturn]] void refuse(const std::string& what, std::uint64_t limit) const {
    throw Error(Code::invalid_argument,
                "kernel '" + label + "' asks for " + what + "; the limit on " + device.name +
                    " is " + std::to_string(limit) + " (" + node.describe_launch() + ")");
  }
  void within(const char* what, const Dim3& dim, int x, int y, int z) const {
    if (dim.x > std::uint32_t(x)) refuse(std::string(what) + ".x of " + text(dim), x);
    if (dim.y > std::uint32_t(y)) refuse(std::string(what) + ".y of " + text(dim), y);
    if (dim.z > std::uint32_t(z)) refuse(std::string(what) + ".z of " + text(dim), z);
  }

  const DeviceInfo& device;
  const std::string& label;
  const KernelNode& node;
};

void check_dimensions(const Asked& asked, int max_threads) {
  const auto& [device, label, node] = asked;
  asked.within("grid", node.grid, device.max_grid_x, device.max_grid_y, device.max_grid_z);
  asked.within("block", node.block, device.max_block_x, device.max_block_y, device.max_block_z);
  const std::uint64_t threads = std::uint64_t{node.block.x} * node.block.y * node.block.z;
  if (threads > std::uint64_t(max_threads)) {
    asked.refuse("block " + text(node.block) + ", " + std::to_string(threads) + " threads",
                 max_threads);
  }
  const std::uint64_t cluster = std::uint64_t{node.cluster.x} * node.cluster.y * node.cluster.z;
  if (cluster > std::uint64_t(device.max_cluster)) {
    asked.refuse("clusters of " + std::to_string(cluster) + " blocks", device.max_cluster);
  }
  if (node.grid.x % node.cluster.x || node.grid.y % node.cluster.y ||
      node.grid.z % node.cluster.z) {
    throw Error(Code::invalid_argument, "kernel '" + label + "': grid " + text(node.grid) +
                                            " is not a multiple of cluster " + text(node.cluster));
  }
  if (node.cooperative && !device.cooperative_launch) {
    throw Error(Code::invalid_argument, "kernel '" + label +
                                            "' asks for a cooperative launch, which " +
                                            device.name + " does not have");
  }
}

// All blocks of a cluster, or of a cooperative grid, must be on the device at the same time.
void check_residency(const Driver& driver, const DeviceInfo& device, CUfunction function,
                     const std::string& label, const KernelNode& node) {
  const LaunchConfig config(node, nullptr);
  int clusters = 0;
  if (node.has_cluster()) {
    JGE_CALL(driver, cuOccupancyMaxActiveClusters, &clusters, function, config.get());
    if (clusters == 0) {
      throw Error(Code::invalid_argument,
                  "kernel '" + label + "': not one cluster " + text(node.cluster) + " of blocks " +
                      text(node.block) + " with " + std::to_string(node.shared_bytes) +
                      " bytes of dynamic shared memory fits on " + device.name +
                      "; ask for fewer blocks in a cluster, or less of each");
    }
  }
  if (!node.cooperative) return;
  int per_multiprocessor = 0;
  JGE_CALL(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor, &per_multiprocessor, function,
           int(node.block.x * node.block.y * node.block.z), node.shared_bytes);
  const std::uint64_t most = std::uint64_t(per_multiprocessor) * device.multiprocessors;
  const std::uint64_t blocks = std::uint64_t{node.grid.x} * node.grid.y * node.grid.z;
  if (blocks > most) {
    throw Error(Code::invalid_argument, "kernel '" + label + "' asks for a cooperative launch of " +
                                            std::to_string(blocks) + " blocks; " + device.name +
                                            " runs at most " + std::to_string(most) +
                                            " of them at the same time (" + node.describe_launch() +
                                            ")");
  }
}

}  // namespace

FunctionAttributes attributes_of(const Driver& driver, CUfunction function) {
  return {attribute(driver, function, CU_FUNC_ATTRIBUTE_NUM_REGS),
          attribute(driver, function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
          attribute(driver, function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
          attribute(driver, function, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES),
          attribute(driver, function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)};
}

int active_blocks(const Driver& driver, const DeviceInfo& device, CUfunction function, int threads,
                  std::size_t shared_bytes) {
  const int fixed = attribute(driver, function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  if (threads > attribute(driver, function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) return 0;
  if (shared_bytes > dynamic_shared_limit(device, fixed)) return 0;
  opt_in(driver, device, function, fixed, shared_bytes);
  int blocks = 0;
  JGE_CALL(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function, threads,
           shared_bytes);
  return blocks;
}

void prepare_launch(const Driver& driver, const DeviceInfo& device, CUfunction function,
                    const std::string& label, const KernelNode& node) {
  const Asked asked{device, label, node};
  check_dimensions(asked, attribute(driver, function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK));
  const int fixed = attribute(driver, function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  const std::uint64_t available = dynamic_shared_limit(device, fixed);
  if (node.shared_bytes > available) {
    asked.refuse(std::to_string(node.shared_bytes) + " bytes of dynamic shared memory beside " +
                     std::to_string(fixed) + " static",
                 available);
  }
  opt_in(driver, device, function, fixed, node.shared_bytes);
  if (node.has_cluster() || node.cooperative) {
    check_residency(driver, device, function, label, node);
  }
}

}  // namespace jge

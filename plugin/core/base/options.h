// plugin/core/base/options.h: the options that the core reads, process-wide.
#pragma once

#include <atomic>

namespace jge {

// Set from Python, read at each execution. Zero means: as the table of graph limits says.
struct Options {
  std::atomic<int> max_ops_per_graph{0};
  std::atomic<int> max_mb_per_graph{0};
  std::atomic<bool> use_graphs{true};
  // A clock around every driver call; read when a driver is first used.
  std::atomic<bool> time_driver_calls{false};
  // Nodes of the executable graphs kept per device.
  std::atomic<int> graph_cache_size{1 << 18};
  // How often a graph is launched node by node before it is instantiated.
  std::atomic<int> graph_after{1};
  // Synchronize after every kernel, so that a fault names the kernel that caused it.
  std::atomic<bool> debug{false};
  // An event between any two nodes, for kernel_times().
  std::atomic<bool> time_kernels{false};
};

inline Options& options() {
  static Options instance;
  return instance;
}

}  // namespace jge

// plugin/core/sinks/kernel_times.h: how long each kernel took.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// Adds one measurement.
void add_kernel_time(const std::string& program, const std::string& node, double milliseconds);

}  // namespace jge

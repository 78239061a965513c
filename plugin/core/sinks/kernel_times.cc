// plugin/core/sinks/kernel_times.cc: how long each kernel took.
#include "core/sinks/kernel_times.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "driver/fork.h"

namespace jge {
namespace {

ForkLock mutex;

// By program and node. Never destroyed, as threads may still run at exit.
auto& table() {
  static auto* const times = new std::map<std::pair<std::string, std::string>, KernelTime>();
  return *times;
}

}  // namespace

std::vector<KernelTime> kernel_times() {
  std::vector<KernelTime> times;
  {
    std::lock_guard lock(mutex);
    for (const auto& [key, time] : table()) times.push_back(time);
  }
  std::ranges::stable_sort(times, std::greater<>(), &KernelTime::total);
  return times;
}

void reset_kernel_times() {
  std::lock_guard lock(mutex);
  table().clear();
}

void add_kernel_time(const std::string& program, const std::string& node, double milliseconds) {
  std::lock_guard lock(mutex);
  KernelTime& time = table()[{program, node}];
  if (time.calls == 0) time = {program, node, 0, 0, milliseconds, milliseconds};
  ++time.calls;
  time.total += milliseconds;
  time.least = std::min(time.least, milliseconds);
  time.most = std::max(time.most, milliseconds);
}

}  // namespace jge

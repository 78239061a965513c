// plugin/core/device/device_info.cc: what a device can do, and how large a graph it is given at
// once.
#include "core/device/device_info.h"

#include "core/base/error.h"
#include "core/base/handle.h"
#include "core/base/options.h"

namespace jge {
namespace {

struct LimitRow {
  int major, minor;  // compute capability
  int max_ops, max_mb;
};

// Starting values after MLX's CUDA backend. 9.0 retuned on an H200 (benchmarks/results): a thousand
// nodes took 32 us of host and 975 us of GPU time at 200 nodes a graph, 19 and 970 at 500, 15 and
// 969 at 1000; a smaller graph starts sooner, and is cheaper to make anew.
constexpr LimitRow kLimitRows[] = {
    {8, 0, 20, 400}, {9, 0, 500, 1000}, {10, 0, 100, 1000}, {12, 0, 100, 1000}, {12, 1, 20, 25},
};
constexpr LimitRow kOtherDevices = {0, 0, 20, 100};

// The portable maximum of CUDA's thread block clusters (programming guide, "Thread Block
// Clusters").
constexpr int kPortableClusterSize = 8;

}  // namespace

GraphLimits graph_limits(int compute_major, int compute_minor) {
  const LimitRow* row = &kOtherDevices;
  for (const LimitRow& candidate : kLimitRows) {
    if (candidate.major == compute_major && candidate.minor == compute_minor) row = &candidate;
  }
  GraphLimits limits{row->max_ops, row->max_mb, "table", "table"};
  if (int ops = options().max_ops_per_graph; ops > 0) {
    limits.max_ops = ops;
    limits.ops_source = "option";
  }
  if (int mb = options().max_mb_per_graph; mb > 0) {
    limits.max_mb = mb;
    limits.mb_source = "option";
  }
  return limits;
}

DeviceInfo query_device(const Driver& driver, int ordinal) {
  DeviceInfo info;
  info.ordinal = ordinal;
  info.driver = driver.name;
  JGE_CALL(driver, cuDriverGetVersion, &info.driver_version);
  int count = 0;
  JGE_CALL(driver, cuDeviceGetCount, &count);
  if (ordinal < 0 || ordinal >= count) {
    throw Error(Code::not_found, "there is no device " + std::to_string(ordinal) + ": the " +
                                     driver.name + " driver has " + std::to_string(count) +
                                     ", numbered from 0");
  }
  CUdevice device = 0;
  JGE_CALL(driver, cuDeviceGet, &device, ordinal);
  char name[256] = {};
  JGE_CALL(driver, cuDeviceGetName, name, sizeof name, device);
  info.name = name;
  std::size_t total = 0;
  JGE_CALL(driver, cuDeviceTotalMem, &total, device);
  info.memory_total = total;
#define JGE_QUERY(field, attribute) \
  JGE_CALL(driver, cuDeviceGetAttribute, &info.field, CU_DEVICE_ATTRIBUTE_##attribute, device);
  JGE_DEVICE_ATTRIBUTES(JGE_QUERY)
#undef JGE_QUERY
  if (info.cluster_launch) info.max_cluster = kPortableClusterSize;
  return info;
}

std::uint64_t query_free_memory(const Driver& driver, int ordinal) {
  CUdevice device = 0;
  JGE_CALL(driver, cuDeviceGet, &device, ordinal);
  CUcontext context = nullptr;
  JGE_CALL(driver, cuDevicePrimaryCtxRetain, &context, device);
  std::size_t free = 0, total = 0;
  try {
    ContextScope scope(driver, context);
    JGE_CALL(driver, cuMemGetInfo, &free, &total);
  } catch (...) {
    driver.cuDevicePrimaryCtxRelease(device);
    throw;
  }
  driver.cuDevicePrimaryCtxRelease(device);
  return free;
}

}  // namespace jge

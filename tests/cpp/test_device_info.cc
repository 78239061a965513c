// tests/cpp/test_device_info.cc: what a device says of itself, and the graph limits.
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/device/device_info.h"
#include "test.h"

namespace jge::test {

DRIVER_TEST(device_info_is_plausible) {
  EXPECT(driver.cuInit(0) == CUDA_SUCCESS);
  const DeviceInfo info = query_device(driver, 0);
  EXPECT_EQ(info.driver, driver.name);
  EXPECT(!info.name.empty());
  EXPECT_EQ(info.warp_size, 32);
  EXPECT_EQ(info.max_threads_per_block, 1024);
  EXPECT(info.driver_version >= kMinimumDriver);
  EXPECT(info.shared_memory_per_block_optin >= info.shared_memory_per_block);
  EXPECT(info.memory_total > 0);
  const std::uint64_t free = query_free_memory(driver, 0);
  EXPECT(free > 0 && free <= info.memory_total);
  EXPECT_THROW(query_device(driver, 100000), Error, "there is no device 100000");
  EXPECT_THROW(query_device(driver, -1), Error, "there is no device -1");
}

HOST_TEST(graph_limits_come_from_the_table_or_an_option) {
  const GraphLimits hopper = graph_limits(9, 0);
  EXPECT_EQ(hopper.max_ops, 500);
  EXPECT_EQ(hopper.max_mb, 1000);
  EXPECT_EQ(std::string(hopper.ops_source), "table");
  EXPECT_EQ(graph_limits(12, 1).max_mb, 25);
  EXPECT_EQ(graph_limits(7, 5).max_ops, 20);
  options().max_ops_per_graph = 7;
  const GraphLimits overridden = graph_limits(9, 0);
  options().max_ops_per_graph = 0;
  EXPECT_EQ(overridden.max_ops, 7);
  EXPECT_EQ(std::string(overridden.ops_source), "option");
  EXPECT_EQ(std::string(overridden.mb_source), "table");
}

}  // namespace jge::test

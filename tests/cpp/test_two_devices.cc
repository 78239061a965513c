// tests/cpp/test_two_devices.cc: one program on two devices, which do not meet.
#include <latch>
#include <thread>
#include <utility>

#include "core/base/stats.h"
#include "core/run/runtime.h"
#include "driver/host_driver.h"
#include "program_fixture.h"

namespace jge::test {

// JAX compiles a function once for the devices that it is spread over, and memory of two devices
// may have equal addresses.
HOST_TEST(a_program_keeps_two_devices_apart_at_equal_and_other_addresses) {
  Fixture f(driver);
  OptionsScope set;
  AffineProgram affine = f.program(2);
  for (int i = 0; i < 15; ++i) affine.add(i % 3 == 0, 1, 1);
  ProgramOnDevices program(f.decode(affine));
  float shared[2][10] = {}, own[2][10] = {};
  const auto run = [&](int ordinal, float* first, float* second) {
    f.runtime.run_and_wait(
        program, ordinal,
        in_place({reinterpret_cast<CUdeviceptr>(first), reinterpret_cast<CUdeviceptr>(second)}));
  };
  const std::uint64_t made = stats().instantiations;
  for (int round = 0; round < 4; ++round) {
    for (int ordinal : {0, 1}) run(ordinal, shared[0], shared[1]);
  }
  EXPECT_EQ(shared[0][9], 8 * 10.0f);
  EXPECT_EQ(shared[1][9], 8 * 5.0f);
  EXPECT_EQ(stats().instantiations - made, 2u);  // on each device a graph of its own
  // Where one device's buffers are is no news to the other.
  for (int ordinal : {0, 1}) run(ordinal, own[ordinal], shared[1]);
  const std::uint64_t patched = stats().nodes_patched;
  for (int round = 0; round < 3; ++round) {
    for (int ordinal : {0, 1}) run(ordinal, own[ordinal], shared[1]);
  }
  EXPECT_EQ(own[0][0], 4 * 10.0f);
  EXPECT_EQ(own[1][0], 4 * 10.0f);
  EXPECT_EQ(stats().nodes_patched - patched, 0u);
  EXPECT_EQ(stats().instantiations - made, 2u);
}

// Stops the first graph launch on device 0 until it is let go.
struct Gate {
  std::latch arrived{1}, open{1};
};
Gate* gate = nullptr;

CUresult launch_behind_gate(CUgraphExec exec, CUstream stream) {
  CUdevice device = 0;
  host_driver().cuCtxGetDevice(&device);
  if (Gate* closed = device == 0 ? std::exchange(gate, nullptr) : nullptr) {
    closed->arrived.count_down();
    closed->open.wait();
  }
  return host_driver().cuGraphLaunch(exec, stream);
}

HOST_TEST(a_device_that_is_busy_launching_holds_up_no_other) {
  Fixture f(driver);
  OptionsScope set;
  set->graph_after = 0;
  Driver table = host_driver();
  table.cuGraphLaunch = launch_behind_gate;
  // Never destroyed, as the process's own are not.
  static Runtime& runtime = *new Runtime(*new Driver(table));
  AffineProgram affine = f.program(1);
  for (int i = 0; i < 5; ++i) affine.add(0, 1, 1);
  ProgramOnDevices program(f.decode(affine));
  float data[2][10] = {};
  const auto run = [&](int ordinal) {
    runtime.run_and_wait(program, ordinal,
                         in_place({reinterpret_cast<CUdeviceptr>(data[ordinal])}));
  };
  for (int ordinal : {0, 1}) run(ordinal);  // loaded and instantiated
  Gate closed;
  gate = &closed;
  std::thread first([&] { run(0); });
  closed.arrived.wait();
  // Were a lock held over devices during a launch, this would wait for ever.
  for (int round = 0; round < 3; ++round) run(1);
  EXPECT_EQ(data[1][0], 4 * 5.0f);
  EXPECT_EQ(data[0][0], 5.0f);
  closed.open.count_down();
  first.join();
  EXPECT_EQ(data[0][0], 2 * 5.0f);
  runtime.stop_workers();
}

}  // namespace jge::test

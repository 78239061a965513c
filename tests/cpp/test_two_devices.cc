// tests/cpp/test_two_devices.cc: one program on two devices, whose addresses say nothing.
#include "core/stats.h"
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

}  // namespace jge::test

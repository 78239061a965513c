// tests/cpp/test_host_controls.cc: forced failures, recorded calls, random orders, counts of
// handles.
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/host_driver.h"
#include "host_session.h"

namespace jge::test {

namespace {

// Calls a function of the table with zeros, which it must not get to see.
template <class... Args>
CUresult call_with_zeros(CUresult (*function)(Args...)) {
  return function(Args{}...);
}

}  // namespace

HOST_TEST(host_fails_every_function_in_turn) {
  const Switches switches;
  const host::LiveHandles before = host::live_handles();
#define JGE_FAIL(function, version)                                      \
  host::fail_call(#function, 1, CUDA_ERROR_OUT_OF_MEMORY);               \
  EXPECT_EQ(call_with_zeros(driver.function), CUDA_ERROR_OUT_OF_MEMORY); \
  host::fail_call(#function, 2, CUDA_ERROR_DEINITIALIZED);               \
  EXPECT(call_with_zeros(driver.cuDriverGetVersion) != CUDA_SUCCESS);    \
  host::fail_call(#function, 0, CUDA_SUCCESS);
  JGE_DRIVER_FUNCTIONS(JGE_FAIL)
#undef JGE_FAIL
  EXPECT(host::live_handles() == before);
}

HOST_TEST(host_refuses_zeros_in_every_function) {
  const Session s(driver);
  int refused = 0, total = 0;
#define JGE_CALL(function, version)                                              \
  if (std::strcmp(#function, "cuInit") != 0) {                                   \
    ++total;                                                                     \
    refused += call_with_zeros(driver.function) != CUDA_SUCCESS;                 \
    driver.cuCtxSetCurrent(s.context);                                           \
    driver.cuDevicePrimaryCtxRetain(&const_cast<Session&>(s).context, s.device); \
  }
  JGE_DRIVER_FUNCTIONS(JGE_CALL)
#undef JGE_CALL
  // Zeros mean something to: release of device 0, no context, the legacy stream (synchronize,
  // query), and empty copies and fills on it.
  EXPECT_EQ(total - refused, 8);
}

HOST_TEST(host_fails_the_nth_call) {
  const Switches switches;
  const Session s(driver);
  int count = 0;
  host::fail_call("cuDeviceGetCount", 3, CUDA_ERROR_NO_DEVICE);
  OK(driver.cuDeviceGetCount(&count));
  OK(driver.cuDeviceGetCount(&count));
  EXPECT_EQ(driver.cuDeviceGetCount(&count), CUDA_ERROR_NO_DEVICE);
  OK(driver.cuDeviceGetCount(&count));
  host::fail_call("*", 2, CUDA_ERROR_UNKNOWN);
  OK(driver.cuDeviceGetCount(&count));
  EXPECT_EQ(driver.cuStreamQuery(s.stream), CUDA_ERROR_UNKNOWN);
  OK(driver.cuStreamQuery(s.stream));
  EXPECT_THROW(host::fail_call("cuMemAlloc_v2", 1, CUDA_ERROR_UNKNOWN), std::invalid_argument,
               "no function \"cuMemAlloc_v2\"");
  EXPECT_THROW(host::fail_call("*", -1, CUDA_ERROR_UNKNOWN), std::invalid_argument, "nth");
}

HOST_TEST(host_records_calls) {
  const Switches switches;
  const Session s(driver);
  host::record_calls(true);
  CUdeviceptr pointer = 0;
  OK(driver.cuMemAlloc(&pointer, 4));
  OK(driver.cuMemFree(pointer));
  host::record_calls(false);
  s.sync();
  EXPECT((host::take_calls() == std::vector<std::string>{"cuMemAlloc", "cuMemFree"}));
  EXPECT(host::take_calls().empty());
}

HOST_TEST(host_counts_live_handles) {
  const host::LiveHandles before = host::live_handles();
  {
    const Session s(driver);
    const Buffer<float> data(s, 1);
    CUevent event = nullptr;
    OK(driver.cuEventCreate(&event, CU_EVENT_DEFAULT));
    TestGraph g(s);
    g.affine(data.pointer, 2, 1, {});
    g.instantiate();
    host::LiveHandles expected = before;
    ++expected.streams, ++expected.events, ++expected.modules, ++expected.graphs;
    ++expected.execs, ++expected.allocations;
    EXPECT(host::live_handles() == expected);
    OK(driver.cuEventDestroy(event));
  }
  EXPECT(host::live_handles() == before);
}

HOST_TEST(host_order_seed_shows_a_missing_edge) {
  const Switches switches;
  const Session s(driver);
  const auto results = [&](bool linked) {
    float value = 0;
    TestGraph g(s);
    const CUgraphNode first = g.affine(address(&value), 2, 1, {});
    g.affine(address(&value), 3, 5, linked ? std::vector{first} : std::vector<CUgraphNode>{});
    g.instantiate();
    std::set<float> seen;
    for (unsigned seed = 0; seed < 20; ++seed) {
      host::set_order_seed(seed);
      value = 1;
      g.launch();
      s.sync();
      seen.insert(value);
    }
    return seen;
  };
  EXPECT((results(true) == std::set<float>{14}));
  EXPECT((results(false) == std::set<float>{14, 17}));
}

HOST_TEST(host_order_seed_repeats) {
  const Switches switches;
  const Session s(driver);
  float value = 0;
  TestGraph g(s);
  for (int i = 0; i < 8; ++i) g.affine(address(&value), 2, static_cast<float>(i), {});
  g.instantiate();
  const auto run = [&](std::optional<std::uint64_t> seed) {
    host::set_order_seed(seed);
    value = 1;
    g.launch();
    s.sync();
    return value;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT(run(7) != run(8));
  EXPECT_EQ(run(std::nullopt), 503.0f);  // as they were added
}

HOST_TEST(host_skips_execution_when_told) {
  const Switches switches;
  const Session s(driver);
  float value = 1;
  host::set_execution(false);
  s.affine(address(&value), 2, 1, 1, s.stream);
  OK(driver.cuMemsetD8Async(address(&value), 0, 4, s.stream));
  s.sync();
  EXPECT_EQ(value, 1.0f);
}

}  // namespace jge::test

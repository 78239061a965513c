// tests/cpp/test_contract_streams.cc: every driver: the order of work on streams, and events.
#include <vector>

#include "driver_session.h"
#include "second_stream.h"

namespace jge::test {

DRIVER_TEST(stream_runs_in_order) {
  const Session s(driver);
  const Buffer<float> data(s, 4, 1.0f);
  float expected = 1.0f;
  for (int i = 0; i < 100; ++i) {
    const float scale = i % 2 ? 0.5f : 2.0f;
    s.affine(data.pointer, scale, static_cast<float>(i), 4, s.stream);
    expected = scale * expected + static_cast<float>(i);
  }
  EXPECT_EQ(data.first(), expected);
}

DRIVER_TEST(stream_tells_what_it_is) {
  const Session s(driver);
  const SecondStream other(s);
  unsigned long long a = 0, b = 0;
  OK(driver.cuStreamGetId(s.stream, &a));
  OK(driver.cuStreamGetId(other.stream, &b));
  EXPECT(a != b);
  CUcontext context = nullptr;
  OK(driver.cuStreamGetCtx(s.stream, &context));
  EXPECT(context == s.context);
  EXPECT_EQ(capture_status(s, s.stream), CU_STREAM_CAPTURE_STATUS_NONE);
  s.sync();
  OK(driver.cuStreamQuery(s.stream));
}

DRIVER_TEST(events_order_streams) {
  const Session s(driver);
  const SecondStream other(s);
  const Buffer<float> data(s, 1, 1.0f);
  for (int i = 0; i < 10; ++i) {  // events are used again before they are reached
    s.affine(data.pointer, 2, 1, 1, s.stream);
    OK(driver.cuEventRecord(other.fork, s.stream));
    OK(driver.cuStreamWaitEvent(other.stream, other.fork, 0));
    s.affine(data.pointer, 0.5f, 3, 1, other.stream);
    OK(driver.cuEventRecord(other.join, other.stream));
    OK(driver.cuStreamWaitEvent(s.stream, other.join, 0));
  }
  float expected = 1;
  for (int i = 0; i < 10; ++i) expected = 0.5f * (2 * expected + 1) + 3;
  EXPECT_EQ(data.first(), expected);
}

DRIVER_TEST(events_measure_time) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  CUevent start = nullptr, end = nullptr;
  OK(driver.cuEventCreate(&start, CU_EVENT_DEFAULT));
  OK(driver.cuEventCreate(&end, CU_EVENT_DEFAULT));
  float milliseconds = -1;
  EXPECT_EQ(driver.cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
  OK(driver.cuEventQuery(start));  // never recorded: nothing to wait for
  OK(driver.cuEventRecord(start, s.stream));
  s.affine(data.pointer, 2, 1, 1, s.stream);
  OK(driver.cuEventRecord(end, s.stream));
  OK(driver.cuEventSynchronize(end));
  OK(driver.cuEventElapsedTime(&milliseconds, start, end));
  EXPECT(milliseconds >= 0);
  OK(driver.cuEventDestroy(start));
  OK(driver.cuEventDestroy(end));
}

DRIVER_TEST(events_in_a_graph_are_reached_with_every_launch) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  CUevent events[2] = {};
  for (CUevent& event : events) OK(driver.cuEventCreate(&event, CU_EVENT_DEFAULT));
  float milliseconds = 0;
  {
    TestGraph g(s);
    CUgraphNode first = nullptr, last = nullptr;
    OK(driver.cuGraphAddEventRecordNode(&first, g.graph, nullptr, 0, events[0]));
    const CUgraphNode kernel = g.affine(data.pointer, 2, 1, {first});
    OK(driver.cuGraphAddEventRecordNode(&last, g.graph, &kernel, 1, events[1]));
    EXPECT(driver.cuEventElapsedTime(&milliseconds, events[0], events[1]) != CUDA_SUCCESS);
    g.instantiate();
    for (int launch = 0; launch < 2; ++launch) {
      g.launch();
      s.sync();
      OK(driver.cuEventElapsedTime(&milliseconds, events[0], events[1]));
      EXPECT(milliseconds > 0);
      OK(driver.cuEventElapsedTime(&milliseconds, events[1], events[0]));
      EXPECT(milliseconds < 0);
    }
  }
  EXPECT_EQ(data.first(), 7.0f);
  for (CUevent event : events) OK(driver.cuEventDestroy(event));
}

DRIVER_TEST(host_functions_run_in_stream_order) {
  const Session s(driver);
  const Buffer<float> data(s, 1, 1.0f);
  struct {
    float value = 0;
    std::vector<float> seen;
  } state;
  const auto look = [](void* pointer) {
    auto& look_at = *static_cast<decltype(state)*>(pointer);
    look_at.seen.push_back(look_at.value);
  };
  for (int i = 0; i < 2; ++i) {
    s.affine(data.pointer, 2, 1, 1, s.stream);
    OK(driver.cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(&state.value), data.pointer, 4,
                            s.stream));
    OK(driver.cuLaunchHostFunc(s.stream, look, &state));
  }
  s.sync();
  EXPECT((state.seen == std::vector<float>{3, 7}));
}

DRIVER_TEST(memory_is_allocated_and_freed_in_stream_order) {
  const Session s(driver);
  const Buffer<unsigned> out(s, 4, 0u);
  CUdeviceptr temporary = 0;
  OK(driver.cuMemAllocAsync(&temporary, 16, s.stream));
  OK(driver.cuMemsetD32Async(temporary, 7, 4, s.stream));
  OK(driver.cuMemcpyAsync(out.pointer, temporary, 16, s.stream));
  OK(driver.cuMemFreeAsync(temporary, s.stream));
  EXPECT((out.read() == std::vector<unsigned>{7, 7, 7, 7}));
  EXPECT_EQ(driver.cuMemAllocAsync(nullptr, 16, s.stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemAllocAsync(&temporary, std::size_t{1} << 50, s.stream),
            CUDA_ERROR_OUT_OF_MEMORY);
}

DRIVER_TEST(legacy_stream_is_ordered_with_blocking_streams) {
  const Session s(driver);
  const SecondStream other(s, CU_STREAM_DEFAULT);
  const Buffer<float> data(s, 1, 1.0f);
  s.affine(data.pointer, 2, 1, 1, other.stream);
  s.affine(data.pointer, 3, 1, 1, nullptr);
  s.affine(data.pointer, 4, 1, 1, other.stream);
  OK(driver.cuStreamSynchronize(nullptr));
  EXPECT_EQ(data.first(), 41.0f);
}

}  // namespace jge::test

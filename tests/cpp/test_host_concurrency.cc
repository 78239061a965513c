// tests/cpp/test_host_concurrency.cc: several OS threads on the software driver.
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "driver/host_driver.h"
#include "host_session.h"

namespace jge::test {

HOST_TEST(host_threads_drain_one_stream) {
  const Session s(driver);
  float value = 0;
  float expected = 0;
  for (int i = 0; i < 400; ++i) {
    const float shift = static_cast<float>(i % 7);
    s.affine(address(&value), 0.5f, shift, 1, s.stream);
    expected = 0.5f * expected + shift;
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      driver.cuCtxSetCurrent(s.context);
      wrong += driver.cuStreamSynchronize(s.stream) != CUDA_SUCCESS;
      wrong += value != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

HOST_TEST(host_threads_work_on_their_own) {
  const host::LiveHandles before = host::live_handles();
  const Switches switches;
  host::set_order_seed(1);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      try {
        const Session s(driver);
        const Buffer<float> data(s, 1, 1.0f);
        TestGraph g(s);
        const CUgraphNode node = g.affine(data.pointer, 2, 1, {});
        g.affine(data.pointer, 1, 1, {node});
        g.instantiate();
        for (int i = 0; i < 20; ++i) {
          g.launch();
          OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
          s.affine(data.pointer, 1, 1, 1, s.stream);
          TestGraph captured(s, nullptr);
          OK(driver.cuStreamEndCapture(s.stream, &captured.graph));
          captured.instantiate();
          captured.launch();
          s.affine(data.pointer, 0.25f, 0, 1, s.stream);
          s.sync();
        }
        wrong += !(data.first() > 1.4f && data.first() < 1.6f);
      } catch (const std::exception&) {
        ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT(host::live_handles() == before);
}

HOST_TEST(host_threads_wait_for_each_other_through_events) {
  const Session s(driver);
  constexpr int kRounds = 50;
  CUstream other = nullptr;
  CUevent there = nullptr, back = nullptr;
  OK(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(driver.cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
  OK(driver.cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
  float value = 0;
  for (int i = 0; i < kRounds; ++i) {
    s.affine(address(&value), 1, 1, 1, s.stream);
    OK(driver.cuEventRecord(there, s.stream));
    OK(driver.cuStreamWaitEvent(other, there, 0));
    s.affine(address(&value), 1, 1, 1, other);
    OK(driver.cuEventRecord(back, other));
    OK(driver.cuStreamWaitEvent(s.stream, back, 0));
  }
  std::thread thread([&] {
    driver.cuCtxSetCurrent(s.context);
    driver.cuStreamSynchronize(other);
  });
  s.sync();
  thread.join();
  EXPECT_EQ(value, 2.0f * kRounds);
  OK(driver.cuEventDestroy(there));
  OK(driver.cuEventDestroy(back));
  OK(driver.cuStreamDestroy(other));
}

HOST_TEST(host_capture_modes_reach_other_threads) {
  const Session s(driver);
  const auto alloc_elsewhere = [&] {
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      driver.cuCtxSetCurrent(s.context);
      CUdeviceptr pointer = 0;
      result = driver.cuMemAlloc(&pointer, 4);
      if (result == CUDA_SUCCESS) driver.cuMemFree(pointer);
    }).join();
    return result;
  };
  CUgraph graph = nullptr;
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(alloc_elsewhere());
  OK(driver.cuStreamEndCapture(s.stream, &graph));
  OK(driver.cuGraphDestroy(graph));
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(alloc_elsewhere(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(driver.cuStreamEndCapture(s.stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

}  // namespace jge::test

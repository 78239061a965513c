// tests/cpp/test_host_faults.cc: kernels that fail: what is reported, to which thread, and what
// still runs.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "driver/host_driver.h"
#include "host_session.h"

namespace jge::test {

HOST_TEST(host_functions_behind_a_failed_kernel_are_not_called) {
  const Switches switches;
  const Session s(driver);
  int called = 0;
  launch_fail(s, 1, s.stream);
  OK(driver.cuLaunchHostFunc(
      s.stream, [](void* counter) { ++*static_cast<int*>(counter); }, &called));
  EXPECT_EQ(driver.cuStreamSynchronize(s.stream), CUDA_ERROR_ASSERT);
  s.sync();
  EXPECT_EQ(called, 0);
}

HOST_TEST(host_tells_a_fault_once_and_recovers) {
  const Session s(driver);
  float value = 1;
  s.affine(address(&value), 2, 1, 1, s.stream);
  launch_fail(s, 1, s.stream);
  s.affine(address(&value), 2, 1, 1, s.stream);
  EXPECT_EQ(driver.cuStreamSynchronize(s.stream), CUDA_ERROR_ASSERT);
  EXPECT_EQ(host::take_fault(), "fail: assertion `code == 0' failed");
  EXPECT_EQ(host::take_fault(), "");
  EXPECT_EQ(value, 3.0f);  // what was queued behind is dropped
  s.sync();
  launch_fail(s, 0, s.stream);
  s.affine(address(&value), 2, 1, 1, s.stream);
  s.sync();
  EXPECT_EQ(value, 7.0f);
}

HOST_TEST(host_fault_reaches_waiters_through_an_event) {
  const Session s(driver);
  CUstream other = nullptr;
  CUevent event = nullptr;
  OK(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(driver.cuEventCreate(&event, CU_EVENT_DEFAULT));
  float value = 1;
  launch_fail(s, 1, s.stream);
  OK(driver.cuEventRecord(event, s.stream));
  OK(driver.cuStreamWaitEvent(other, event, 0));
  s.affine(address(&value), 2, 1, 1, other);
  EXPECT_EQ(driver.cuStreamSynchronize(other), CUDA_ERROR_ASSERT);
  EXPECT_EQ(host::take_fault(), "fail: assertion `code == 0' failed");
  EXPECT_EQ(value, 1.0f);
  s.sync();
  OK(driver.cuEventSynchronize(event));
  OK(driver.cuEventDestroy(event));
  OK(driver.cuStreamDestroy(other));
}

HOST_TEST(host_fault_in_a_graph_ends_it) {
  const Session s(driver);
  float value = 1;
  int code = 1;
  TestGraph g(s);
  Args args(code);
  const CUDA_KERNEL_NODE_PARAMS params = g.kernel("fail", args.get());
  CUgraphNode node = nullptr;
  OK(driver.cuGraphAddKernelNode(&node, g.graph, nullptr, 0, &params));
  g.affine(address(&value), 2, 1, {node});
  g.instantiate();
  g.launch();
  EXPECT_EQ(driver.cuStreamSynchronize(s.stream), CUDA_ERROR_ASSERT);
  EXPECT_EQ(value, 1.0f);
  code = 0;
  OK(driver.cuGraphExecKernelNodeSetParams(g.exec, node, &params));
  g.launch();
  s.sync();
  EXPECT_EQ(value, 3.0f);
  host::take_fault();
}

HOST_TEST(host_threads_share_a_fault) {
  const Session s(driver);
  int flag = 0;
  CUdeviceptr at = address(&flag);
  const CUlaunchConfig config = one_block(1, s.stream);
  OK(driver.cuLaunchKernelEx(&config, s.function("fail_later"), Args(at).get(), nullptr));
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      driver.cuCtxSetCurrent(s.context);
      const CUresult result = driver.cuStreamSynchronize(s.stream);
      told += result == CUDA_ERROR_ASSERT && host::take_fault() == "fail_later: the flag is up";
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until all of them wait
  __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told.load(), 3);
  s.sync();
}

HOST_TEST(host_free_leaves_faults_to_the_next_wait) {
  const Session s(driver);
  CUdeviceptr pointer = 0;
  OK(driver.cuMemAlloc(&pointer, 4));
  launch_fail(s, 1, s.stream);
  OK(driver.cuMemFree(pointer));
  host::take_fault();
  EXPECT_EQ(driver.cuStreamSynchronize(s.stream), CUDA_ERROR_ASSERT);
  EXPECT_EQ(host::take_fault(), "fail: assertion `code == 0' failed");
  s.sync();
}

}  // namespace jge::test

// tests/cpp/test_host_driver.cc: what only the software driver does: late work, owned handles,
// limits.
#include <string>

#include "driver/host_driver.h"
#include "host_session.h"

namespace jge::test {

HOST_TEST(host_runs_work_when_it_is_waited_for) {
  const Session s(driver);
  float value = 1;
  s.affine(address(&value), 2, 1, 1, s.stream);
  EXPECT_EQ(value, 1.0f);
  OK(driver.cuStreamQuery(s.stream));
  EXPECT_EQ(value, 3.0f);
}

HOST_TEST(host_streams_do_not_run_each_other) {
  const Session s(driver);
  CUstream other = nullptr;
  CUevent event = nullptr;
  OK(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  float a = 1, b = 1;
  s.affine(address(&a), 2, 1, 1, s.stream);
  OK(driver.cuEventRecord(event, s.stream));
  s.affine(address(&a), 2, 1, 1, s.stream);
  s.affine(address(&b), 2, 1, 1, other);
  OK(driver.cuStreamWaitEvent(other, event, 0));
  OK(driver.cuStreamSynchronize(other));
  EXPECT_EQ(a, 3.0f);  // as far as the event, no further
  EXPECT_EQ(b, 3.0f);
  OK(driver.cuEventDestroy(event));
  OK(driver.cuStreamDestroy(other));
}

HOST_TEST(host_functions_cannot_call_the_driver) {
  const Session s(driver);
  struct {
    const Driver& driver;
    CUresult result = CUDA_SUCCESS;
  } call{driver};
  const auto ask = [](void* pointer) {
    auto& to = *static_cast<decltype(call)*>(pointer);
    int count = 0;
    to.result = to.driver.cuDeviceGetCount(&count);
  };
  OK(driver.cuLaunchHostFunc(s.stream, ask, &call));
  EXPECT_EQ(call.result, CUDA_SUCCESS);  // not called yet
  s.sync();                              // and afterwards the thread may call again
  EXPECT_EQ(call.result, CUDA_ERROR_NOT_PERMITTED);
}

HOST_TEST(host_frees_stream_ordered_memory_behind_the_work_that_uses_it) {
  const Session s(driver);
  const host::LiveHandles before = host::live_handles();
  CUdeviceptr temporary = 0, captured = 0;
  float out = 0;
  OK(driver.cuMemAllocAsync(&temporary, 4, s.stream));
  EXPECT_EQ(host::live_handles().allocations, before.allocations + 1);
  OK(driver.cuMemsetD32Async(temporary, 0, 1, s.stream));
  s.affine(temporary, 1, 5, 1, s.stream);
  OK(driver.cuMemcpyAsync(address(&out), temporary, 4, s.stream));
  OK(driver.cuMemFreeAsync(temporary, s.stream));
  EXPECT_EQ(driver.cuMemFreeAsync(temporary, s.stream), CUDA_ERROR_INVALID_VALUE);
  s.sync();
  EXPECT_EQ(out, 5.0f);
  // A graph frees what it allocates, once.
  CUgraph graph = nullptr;
  OK(driver.cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(driver.cuMemFreeAsync(address(&out), s.stream), CUDA_ERROR_INVALID_VALUE);
  OK(driver.cuMemAllocAsync(&captured, 4, s.stream));
  OK(driver.cuMemFreeAsync(captured, s.stream));
  EXPECT_EQ(driver.cuMemFreeAsync(captured, s.stream), CUDA_ERROR_INVALID_VALUE);
  OK(driver.cuStreamEndCapture(s.stream, &graph));
  EXPECT_EQ(driver.cuMemFree(captured), CUDA_ERROR_INVALID_VALUE);
  OK(driver.cuGraphDestroy(graph));
  EXPECT(host::live_handles() == before);
}

HOST_TEST(host_destroys_what_is_in_use) {
  const Session s(driver);
  const std::string image = test_image(driver);
  float value = 1, scale = 2, shift = 1;
  int n = 1;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  OK(driver.cuModuleLoadData(&module, image.data()));
  OK(driver.cuModuleGetFunction(&function, module, "affine"));
  OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(driver.cuEventCreate(&event, CU_EVENT_DEFAULT));
  const CUlaunchConfig config = one_block(1, stream);
  CUdeviceptr data = address(&value);
  OK(driver.cuLaunchKernelEx(&config, function, Args(data, scale, shift, n).get(), nullptr));
  TestGraph g(s);
  g.affine(data, 10, 0, {});
  g.instantiate();
  OK(driver.cuGraphLaunch(g.exec, stream));
  OK(driver.cuEventRecord(event, stream));
  OK(driver.cuStreamWaitEvent(s.stream, event, 0));
  OK(driver.cuGraphExecDestroy(g.exec));
  g.exec = nullptr;
  OK(driver.cuModuleUnload(module));
  OK(driver.cuStreamDestroy(stream));
  EXPECT_EQ(value, 30.0f);
  OK(driver.cuEventSynchronize(event));
  OK(driver.cuEventDestroy(event));
  s.sync();
}

HOST_TEST(host_refuses_nodes_of_a_destroyed_graph) {
  const Session s(driver);
  float value = 1, scale = 2, shift = 1;
  int n = 1;
  TestGraph g(s);
  const CUgraphNode node = g.affine(address(&value), 2, 1, {});
  CUdeviceptr data = address(&value);
  Args args(data, scale, shift, n);
  const CUDA_KERNEL_NODE_PARAMS params = g.kernel("affine", args.get());
  g.instantiate();
  OK(driver.cuGraphDestroy(g.graph));
  g.graph = nullptr;
  EXPECT_EQ(driver.cuGraphExecKernelNodeSetParams(g.exec, node, &params), CUDA_ERROR_INVALID_VALUE);
}

HOST_TEST(host_sees_wrong_handles) {
  const Session s(driver);
  const auto wrong = [&](auto handle) { return reinterpret_cast<decltype(handle)>(s.stream); };
  std::size_t count = 0;
  EXPECT_EQ(driver.cuEventQuery(wrong(CUevent{})), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.cuModuleUnload(wrong(CUmodule{})), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver.cuGraphGetNodes(wrong(CUgraph{}), nullptr, &count), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuCtxSetCurrent(wrong(CUcontext{})), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuEventQuery(reinterpret_cast<CUevent>(std::uintptr_t{4097})),
            CUDA_ERROR_INVALID_HANDLE);
}

HOST_TEST(host_devices_are_apart) {
  const Session s(driver);
  CUcontext second = nullptr;
  OK(driver.cuDevicePrimaryCtxRetain(&second, 1));
  EXPECT(second != s.context);
  OK(driver.cuCtxSetCurrent(second));
  CUstream stream = nullptr;
  OK(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUlaunchConfig config = one_block(1, stream);
  EXPECT_EQ(driver.cuLaunchKernelEx(&config, s.function("nothing"), nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  OK(driver.cuStreamDestroy(stream));
  OK(driver.cuDevicePrimaryCtxRelease(1));
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuDevicePrimaryCtxRelease(host::kMaxDevices), CUDA_ERROR_INVALID_DEVICE);
}

HOST_TEST(host_has_no_clusters_nor_cooperative_launches) {
  const Session s(driver);
  CUlaunchConfig config = one_block(1, s.stream);
  CUlaunchAttribute attribute{};
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto launch = [&] {
    return driver.cuLaunchKernelEx(&config, s.function("nothing"), nullptr, nullptr);
  };
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {1, 1, 1};
  OK(launch());
  attribute.value.clusterDim = {2, 1, 1};
  EXPECT_EQ(launch(), CUDA_ERROR_NOT_SUPPORTED);
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  EXPECT_EQ(launch(), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace jge::test

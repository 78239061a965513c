// tests/cpp/test_contract_devices.cc: every driver: devices, contexts, memory and null handles.
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "driver_session.h"

namespace jge::test {

DRIVER_TEST(driver_answers_device_queries) {
  const Session s(driver);
  int version = 0, count = 0, value = 0;
  OK(driver.cuDriverGetVersion(&version));
  EXPECT(version >= kMinimumDriver);
  OK(driver.cuDeviceGetCount(&count));
  EXPECT(count > 0);
  OK(driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, s.device));
  EXPECT_EQ(value, 32);
  OK(driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, s.device));
  EXPECT_EQ(value, 1024);
  char name[256] = "";
  OK(driver.cuDeviceGetName(name, sizeof name, s.device));
  EXPECT(std::strlen(name) > 0);
  std::size_t total = 0, free = 0, all = 0;
  OK(driver.cuDeviceTotalMem(&total, s.device));
  OK(driver.cuMemGetInfo(&free, &all));
  EXPECT(free <= all && all <= total);
  CUdevice device = -1;
  OK(driver.cuCtxGetDevice(&device));
  EXPECT_EQ(device, s.device);
  EXPECT_EQ(driver.cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
  const char* text = nullptr;
  OK(driver.cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_EQ(std::string(text), "CUDA_ERROR_OUT_OF_MEMORY");
  OK(driver.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT(text != nullptr);
  EXPECT_EQ(driver.cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
}

DRIVER_TEST(driver_needs_a_current_context) {
  const Session s(driver);
  OK(driver.cuCtxSetCurrent(nullptr));
  CUstream stream = nullptr;
  CUdeviceptr pointer = 0;
  CUdevice device = 0;
  EXPECT_EQ(driver.cuMemAlloc(&pointer, 16), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(driver.cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
  OK(driver.cuCtxSetCurrent(s.context));
  CUcontext context = nullptr;
  OK(driver.cuCtxGetCurrent(&context));
  EXPECT(context == s.context);
  std::thread([&] { driver.cuCtxGetCurrent(&context); }).join();
  EXPECT(context == nullptr);  // each thread has its own
}

DRIVER_TEST(driver_copies_and_fills) {
  const Session s(driver);
  const Buffer<unsigned> a(s, 8), b(s, 8, 7u);
  OK(driver.cuMemsetD32Async(a.pointer, 0x01020304u, 4, s.stream));
  OK(driver.cuMemsetD16Async(a.pointer + 16, 0x0506, 4, s.stream));
  OK(driver.cuMemsetD8Async(a.pointer + 24, 0x09, 4, s.stream));
  OK(driver.cuMemcpyAsync(b.pointer + 4, a.pointer + 12, 16, s.stream));
  const auto read = b.read();
  const std::vector<unsigned> expected = {7,          0x01020304, 0x05060506, 0x05060506,
                                          0x09090909, 7,          7,          7};
  EXPECT(read == expected);
  OK(driver.cuMemcpyAsync(b.pointer, a.pointer, 0, s.stream));
  OK(driver.cuMemsetD8Async(a.pointer, 0, 0, s.stream));
}

DRIVER_TEST(driver_refuses_bad_memory_calls) {
  const Session s(driver);
  CUdeviceptr pointer = 0;
  EXPECT_EQ(driver.cuMemAlloc(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemAlloc(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemAlloc(&pointer, std::size_t{1} << 60), CUDA_ERROR_OUT_OF_MEMORY);
  int local = 0;
  EXPECT_EQ(driver.cuMemFree(reinterpret_cast<CUdeviceptr>(&local)), CUDA_ERROR_INVALID_VALUE);
}

DRIVER_TEST(driver_refuses_null_handles) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  const CUlaunchConfig config = one_block(1, s.stream);
  std::size_t count = 0;
  CUfunction function = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT(driver.cuEventRecord(nullptr, s.stream) != CUDA_SUCCESS);
  EXPECT(driver.cuStreamWaitEvent(s.stream, nullptr, 0) != CUDA_SUCCESS);
  EXPECT(driver.cuLaunchHostFunc(s.stream, nullptr, nullptr) != CUDA_SUCCESS);
  EXPECT(driver.cuModuleGetFunction(&function, nullptr, "fill") != CUDA_SUCCESS);
  EXPECT(driver.cuLaunchKernelEx(&config, nullptr, nullptr, nullptr) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphGetNodes(nullptr, nullptr, &count) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphClone(&graph, nullptr) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphInstantiateWithFlags(&exec, nullptr, 0) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphLaunch(nullptr, s.stream) != CUDA_SUCCESS);
  EXPECT(driver.cuGraphExecDestroy(nullptr) != CUDA_SUCCESS);
}

}  // namespace jge::test

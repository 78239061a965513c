// tests/cpp/test_contract_launches.cc: every driver: launches and modules.
#include <string>
#include <vector>

#include "driver_session.h"

namespace jge::test {

DRIVER_TEST(launch_has_any_shape) {
  const Session s(driver);
  const Buffer<int> out(s, 2 * 3 * 2 * 4 * 2 * 2, -1);
  CUlaunchConfig config = one_block(4, s.stream);
  config.gridDimX = config.gridDimZ = config.blockDimY = config.blockDimZ = 2;
  config.gridDimY = 3;
  OK(driver.cuLaunchKernelEx(&config, s.function("place"), Args(out.pointer).get(), nullptr));
  const auto read = out.read();
  for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], static_cast<int>(i));
  const CUlaunchConfig single = one_block(1, s.stream);
  OK(driver.cuLaunchKernelEx(&single, s.function("nothing"), nullptr, nullptr));
  s.sync();
}

DRIVER_TEST(launch_packs_parameters) {
  const Session s(driver);
  const Buffer<float> out(s, 1);
  char c = 3;
  double d = 0.5;
  struct {
    char tag = 10;
    double weight = 0.25;
  } pair;
  short half = 100;
  int n = 1;
  const CUlaunchConfig config = one_block(1, s.stream);
  OK(driver.cuLaunchKernelEx(&config, s.function("pack"),
                             Args(out.pointer, c, d, pair, half, n).get(), nullptr));
  EXPECT_EQ(out.first(), 113.75f);

  if (!driver.cuFuncGetParamInfo) return;
  const std::size_t expected[][2] = {{0, 8}, {8, 1}, {16, 8}, {24, 16}, {40, 2}, {44, 4}};
  std::size_t offset = 0, size = 0;
  for (std::size_t i = 0; i < 6; ++i) {
    OK(driver.cuFuncGetParamInfo(s.function("pack"), i, &offset, &size));
    EXPECT_EQ(offset, expected[i][0]);
    EXPECT_EQ(size, expected[i][1]);
  }
  EXPECT_EQ(driver.cuFuncGetParamInfo(s.function("pack"), 6, &offset, &size),
            CUDA_ERROR_INVALID_VALUE);
}

DRIVER_TEST(launch_copies_parameters) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  CUdeviceptr pointer = data.pointer;
  float value = 5;
  int n = 1;
  const CUlaunchConfig config = one_block(1, s.stream);
  OK(driver.cuLaunchKernelEx(&config, s.function("fill"), Args(pointer, value, n).get(), nullptr));
  value = 6;
  n = 0;
  EXPECT_EQ(data.first(), 5.0f);
}

DRIVER_TEST(launch_refuses_bad_shapes) {
  const Session s(driver);
  const Buffer<float> data(s, 1);
  float value = 5;
  int n = 1;
  Args args(data.pointer, value, n);
  const CUfunction fill = s.function("fill");
  const auto launch = [&](auto change) {
    CUlaunchConfig config = one_block(1, s.stream);
    change(config);
    return driver.cuLaunchKernelEx(&config, fill, args.get(), nullptr);
  };
  EXPECT_EQ(launch([](auto& c) { c.gridDimX = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch([](auto& c) { c.blockDimX = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch([](auto& c) { c.blockDimX = 1025; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch([](auto& c) { c.gridDimY = 65536; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch([](auto& c) { c.sharedMemBytes = 64 * 1024; }), CUDA_ERROR_INVALID_VALUE);
  OK(driver.cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * 1024));
  OK(launch([](auto& c) { c.sharedMemBytes = 64 * 1024; }));
  int bytes = 0, threads = 0;
  OK(driver.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, fill));
  EXPECT_EQ(bytes, 64 * 1024);
  OK(driver.cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
  EXPECT_EQ(threads, 1024);
  EXPECT(driver.cuFuncSetAttribute(fill, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   1 << 20) != CUDA_SUCCESS);
  int blocks = 0;
  OK(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, 0));
  EXPECT(blocks >= 1);
  EXPECT_EQ(data.first(), 5.0f);
}

DRIVER_TEST(module_knows_its_kernels) {
  const Session s(driver);
  CUfunction found = nullptr;
  EXPECT_EQ(driver.cuModuleGetFunction(&found, s.module, "absent"), CUDA_ERROR_NOT_FOUND);
  const char* name = nullptr;
  OK(driver.cuFuncGetName(&name, s.function("axpy")));
  EXPECT_EQ(std::string(name), "axpy");
  if (!driver.cuModuleGetFunctionCount || !driver.cuModuleEnumerateFunctions) return;
  unsigned count = 0;
  OK(driver.cuModuleGetFunctionCount(&count, s.module));
  EXPECT(count >= 7);
  std::vector<CUfunction> all(count);
  OK(driver.cuModuleEnumerateFunctions(all.data(), count, s.module));
  int named = 0;
  for (CUfunction function : all) {
    OK(driver.cuFuncGetName(&name, function));
    named += std::string(name) == "affine";
  }
  EXPECT_EQ(named, 1);
}

DRIVER_TEST(module_refuses_bytes_that_are_no_image) {
  const Session s(driver);
  CUmodule module = nullptr;
  const std::string text(4096, 'x');
  EXPECT(driver.cuModuleLoadData(&module, text.data()) != CUDA_SUCCESS);
  EXPECT(driver.cuModuleLoadData(&module, nullptr) != CUDA_SUCCESS);
}

}  // namespace jge::test

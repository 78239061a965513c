// tests/cpp/test_host_images.cc: kernel images of the software driver.
#include <filesystem>
#include <iterator>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "driver/host_driver.h"
#include "host_session.h"

namespace jge::test {

HOST_TEST(host_image_lists_its_kernels) {
  const std::string image = test_image(driver);
  const auto kernels = host::image_kernels(image);
  EXPECT_EQ(kernels.size(), 10u);
  EXPECT_EQ(kernels[1].name, "axpy");
  EXPECT_EQ(kernels[1].type, "PFvPKfS0_PffiE");
  EXPECT_EQ(kernels[1].params.size(), 5u);
  EXPECT_EQ(kernels[1].params[4].offset, 28u);
  EXPECT_EQ(*host::image_size(image.data(), image.size()), image.size());
  const std::string padded = image + "more";
  EXPECT_EQ(*host::image_size(padded.data(), padded.size()), image.size());
  EXPECT_THROW(host::image_kernels("text"), std::invalid_argument, "not a complete ELF");
  EXPECT_THROW(host::image_kernels(std::string_view(image).substr(0, image.size() / 2)),
               std::invalid_argument, "not a complete ELF");
}

HOST_TEST(host_images_loaded_twice_are_apart) {
  const Session s(driver);
  const std::string image = test_image(driver);
  CUmodule first = nullptr, second = nullptr;
  CUfunction a = nullptr, b = nullptr;
  OK(driver.cuModuleLoadData(&first, image.data()));
  OK(driver.cuModuleLoadData(&second, image.data()));
  OK(driver.cuModuleGetFunction(&a, first, "fill"));
  OK(driver.cuModuleGetFunction(&b, second, "fill"));
  EXPECT(a != b);
  OK(driver.cuModuleUnload(first));
  const CUlaunchConfig config = one_block(1, s.stream);
  float value = 0, five = 5;
  int n = 1;
  CUdeviceptr data = address(&value);
  OK(driver.cuLaunchKernelEx(&config, b, Args(data, five, n).get(), nullptr));
  OK(driver.cuModuleUnload(second));
  s.sync();
  EXPECT_EQ(value, 5.0f);
}

HOST_TEST(host_images_leave_no_files_open) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const Session s(driver);
  const std::string image = test_image(driver);
  const auto before = open_files();
  for (int i = 0; i < 3; ++i) host::image_kernels(image);
  EXPECT_EQ(open_files(), before);
  // Nor while they are loaded, and each is a copy of its own.
  std::vector<CUmodule> modules(50);
  std::set<CUfunction> functions;
  for (CUmodule& module : modules) {
    OK(driver.cuModuleLoadData(&module, image.data()));
    CUfunction function = nullptr;
    OK(driver.cuModuleGetFunction(&function, module, "fill"));
    functions.insert(function);
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(functions.size(), modules.size());
  for (CUmodule module : modules) OK(driver.cuModuleUnload(module));
}

HOST_TEST(host_survives_bad_images) {
  const Session s(driver);
  const std::string image = test_image(driver);
  for (std::size_t size = 0; size < image.size(); size += size < 300 ? 1 : 97) {
    const std::vector<char> exact(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT(!host::image_size(exact.data(), exact.size()));  // a sanitizer sees reads behind
  }
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::vector<char> bytes(image.begin(), image.end());
    const std::size_t span = i % 2 ? 64 : 64 + 56 * 8;  // ELF header; program headers too
    for (unsigned k = 0; k < 1 + random() % 4; ++k) {
      bytes[random() % span] = static_cast<char>(random());
    }
    const auto size = host::image_size(bytes.data(), bytes.size());
    if (size) EXPECT(*size <= bytes.size());
    refused += !size;
  }
  EXPECT(refused > 1000);
  CUmodule module = nullptr;
  for (const std::size_t offset : {0u, 4u, 5u, 16u, 18u, 52u, 54u, 58u}) {
    std::string bytes = image;
    bytes[offset] = static_cast<char>(bytes[offset] ^ 0x55);
    EXPECT_EQ(driver.cuModuleLoadData(&module, bytes.data()), CUDA_ERROR_INVALID_IMAGE);
  }
}

}  // namespace jge::test

// tests/cpp/test_completions.cc: how long callers, handlers and kept objects wait.
#include <atomic>
#include <chrono>
#include <thread>

#include "core/base/error.h"
#include "direct.h"
#include "driver/host_driver.h"
#include "second_stream.h"

namespace jge::test {

// Such options meet a kernel that fails in the commit.
HOST_TEST(encoder_synchronizes_with_handlers_also_when_its_commit_fails) {
  Direct d(driver);
  Buffer<float> a(d.session, 10, 1.0f);
  std::atomic<bool> told = false;
  d.append(a.pointer, 2, 1);
  d.encoder.add_completed_handler([&](CUresult) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    told = true;
  });
  host::fail_call("cuLaunchKernelEx", 1, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_THROW(d.encoder.synchronize(), Error, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES");
  EXPECT(told);
}

}  // namespace jge::test

// tests/cpp/host_session.h: what tests of the software driver share.
#pragma once

#include <optional>

#include "driver/host_driver.h"
#include "driver_session.h"

namespace jge::test {

inline void launch_fail(const Session& s, int code, CUstream stream) {
  const CUlaunchConfig config = one_block(1, stream);
  OK(s.driver.cuLaunchKernelEx(&config, s.function("fail"), Args(code).get(), nullptr));
}

// The driver works on addresses of any host memory, as XLA's buffers are.
inline CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Resets what a test tells the driver.
struct Switches {
  ~Switches() {
    host::set_order_seed(std::nullopt);
    host::set_execution(true);
    host::record_calls(false);
    host::take_calls();
    host::take_fault();
    host::fail_call("*", 0, CUDA_SUCCESS);
  }
};

}  // namespace jge::test

// plugin/core/base/waiting.cc: waits for the device beside captures of any stream.
#include "core/base/waiting.h"

#include <chrono>
#include <thread>

#include "core/base/error.h"
#include "core/base/handle.h"

namespace jge {
namespace {

constexpr auto kPause = std::chrono::milliseconds(1);
constexpr int kMaxAttempts = 8;  // for errors of which the driver does not say whose they are

// Whether a wait failed because of what else happens in the process, which ends some time.
bool passes(CUresult result) {
  return result == CUDA_ERROR_NOT_READY || (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                                            result <= CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

}  // namespace

CUresult wait_for(const Driver& driver, CUstream stream) {
  const RelaxedCaptureScope relaxed(driver);
  return driver.cuStreamSynchronize(stream);
}

CUresult wait_for(const Driver& driver, CUevent event) {
  for (int attempts = 1;; ++attempts) {
    CUresult result = CUDA_SUCCESS;
    {
      const RelaxedCaptureScope relaxed(driver);
      result = driver.cuEventSynchronize(event);
    }
    if (result == CUDA_SUCCESS || is_sticky(result)) return result;
    if (!passes(result) && attempts >= kMaxAttempts) return result;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace jge

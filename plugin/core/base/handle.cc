// plugin/core/base/handle.cc: one owner for every driver handle.
#include "core/base/handle.h"

#include "core/base/error.h"

namespace jge {

RelaxedCaptureScope::RelaxedCaptureScope(const Driver& driver) noexcept
    : driver_(driver), relaxed_(driver.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS) {}

RelaxedCaptureScope::~RelaxedCaptureScope() {
  if (relaxed_) driver_.cuThreadExchangeStreamCaptureMode(&mode_);
}

ContextScope::ContextScope(const Driver& driver, CUcontext context) : driver_(driver) {
  // Asked of the driver each time: the caller may have switched it since the last call.
  JGE_CALL(driver, cuCtxGetCurrent, &callers_);
  if (callers_ == context) return;
  JGE_CALL(driver, cuCtxSetCurrent, context);
  switched_ = true;
}

ContextScope::~ContextScope() {
  if (switched_) driver_.cuCtxSetCurrent(callers_);
}

}  // namespace jge

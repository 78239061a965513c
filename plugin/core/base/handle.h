// plugin/core/base/handle.h: one owner for every driver handle.
#pragma once

#include <utility>

#include "driver/driver.h"

namespace jge {

// Lets the calling thread make calls for a scope that CUDA counts as unsafe while this thread, or
// in global mode any thread, captures a stream: they would fail and spoil that capture. Those of
// the core (allocations, frees, waits, instantiations) do not touch what is captured.
class RelaxedCaptureScope {
 public:
  explicit RelaxedCaptureScope(const Driver& driver) noexcept;
  ~RelaxedCaptureScope();
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool relaxed_;
};

// Owns a driver handle and destroys it with the function of the table that `Destroy` names.
// A failed destroy is ignored: at process exit the driver may already be gone.
template <class H, auto Destroy>
class Handle {
 public:
  Handle() = default;
  Handle(const Driver& driver, H handle) : driver_(&driver), handle_(handle) {}
  Handle(Handle&& other) noexcept
      : driver_(other.driver_), handle_(std::exchange(other.handle_, H{})) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      driver_ = other.driver_;
      handle_ = std::exchange(other.handle_, H{});
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  H get() const { return handle_; }
  explicit operator bool() const { return handle_ != H{}; }
  void reset() noexcept {
    if (handle_ == H{}) return;
    const RelaxedCaptureScope relaxed(*driver_);
    (driver_->*Destroy)(std::exchange(handle_, H{}));
  }

 private:
  const Driver* driver_ = nullptr;
  H handle_{};
};

using Stream = Handle<CUstream, &Driver::cuStreamDestroy>;
using Event = Handle<CUevent, &Driver::cuEventDestroy>;
using Module = Handle<CUmodule, &Driver::cuModuleUnload>;
using Graph = Handle<CUgraph, &Driver::cuGraphDestroy>;
using GraphExec = Handle<CUgraphExec, &Driver::cuGraphExecDestroy>;
using DeviceMemory = Handle<CUdeviceptr, &Driver::cuMemFree>;

// Makes a context current for a scope, and the caller's again after it.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver& driver_;
  CUcontext callers_ = nullptr;
  bool switched_ = false;
};

}  // namespace jge

// plugin/core/device/device.h: one device of one driver, with what is loaded on it.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "core/base/lazy.h"
#include "core/device/device_info.h"
#include "core/device/image.h"
#include "core/device/worker.h"
#include "core/graphs/exec_cache.h"

struct cublasLtContext;
struct cudnnContext;

namespace jge {

// Handles of libraries on one device, made at their first use there with its context current, and
// never destroyed. Nothing here links or loads the libraries.
struct LibraryHandles {
  Lazy<cublasLtContext*> cublaslt;
  Lazy<cudnnContext*> cudnn;
};

// Lives as long as the process: its primary context is retained and never released.
class Device {
 public:
  Device(const Driver& driver, int ordinal);

  const Driver& driver() const { return driver_; }
  const DeviceInfo& info() const { return info_; }
  CUcontext context() const { return context_; }

  ExecCache& execs() { return execs_; }
  Worker& worker() { return worker_; }
  LibraryHandles& libraries() { return libraries_; }

  // The image on this device, loaded at first use and kept: graphs that XLA captured may use it for
  // as long as they like. The device's context must be current.
  const Image& image(const std::shared_ptr<const ImageBytes>& bytes);

 private:
  const Driver& driver_;
  DeviceInfo info_;
  CUcontext context_;
  ExecCache execs_;
  Worker worker_;
  LibraryHandles libraries_;
  std::mutex mutex_;  // of the table; loading waits for the device
  // Keyed by the interned bytes, which the image holds, so that the key stays theirs. A place whose
  // image does not load stays empty.
  std::unordered_map<const ImageBytes*, std::unique_ptr<Lazy<Image>>> images_;
};

}  // namespace jge

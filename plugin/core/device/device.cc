// plugin/core/device/device.cc: one device of one driver, with what is loaded on it.
#include "core/device/device.h"

#include "core/base/error.h"

namespace jge {

namespace {

CUcontext retain(const Driver& driver, int ordinal) {
  CUdevice device = 0;
  JGE_CALL(driver, cuDeviceGet, &device, ordinal);
  CUcontext context = nullptr;
  JGE_CALL(driver, cuDevicePrimaryCtxRetain, &context, device);
  return context;
}

}  // namespace

Device::Device(const Driver& driver, int ordinal)
    : driver_(driver),
      info_(query_device(driver, ordinal)),
      context_(retain(driver, ordinal)),
      worker_(driver, context_) {}

const Image& Device::image(const std::shared_ptr<const ImageBytes>& bytes) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Image>& image = images_[bytes.get()];
  if (!image) {
    try {
      image = std::make_unique<Image>(driver_, bytes);
    } catch (...) {
      images_.erase(bytes.get());
      throw;
    }
  }
  return *image;
}

}  // namespace jge

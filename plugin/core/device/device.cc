// plugin/core/device/device.cc: one device of one driver, with what is loaded on it.
#include "core/device/device.h"

#include <algorithm>

#include "core/base/error.h"

namespace jge {

namespace {

// Every device that a driver for CUDA 12.4 supports has several times as much.
constexpr std::size_t kLeastForGraphs = std::size_t{1} << 29;

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
      execs_(std::max(kLeastForGraphs, std::size_t(info_.memory_total) / 32)),
      worker_(driver, context_) {}

const Image& Device::image(const std::shared_ptr<const ImageBytes>& bytes) {
  Lazy<Image>* image = nullptr;
  {
    std::lock_guard lock(mutex_);
    std::unique_ptr<Lazy<Image>>& place = images_[bytes.get()];
    if (!place) place = std::make_unique<Lazy<Image>>();
    image = place.get();
  }
  return image->get([&] { return Image(driver_, bytes); });
}

}  // namespace jge

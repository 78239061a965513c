// plugin/core/runtime.cc: the devices of a driver and the encoders of their streams.
#include "core/runtime.h"

#include <new>

#include "core/error.h"
#include "core/stats.h"
#include "driver/cuda_driver.h"
#include "driver/host_driver.h"

namespace jge {

Device& Runtime::device(int ordinal) {
  std::lock_guard lock(devices_mutex_);
  auto found = devices_.find(ordinal);
  if (found == devices_.end()) {
    found = devices_.emplace(ordinal, std::make_unique<Device>(driver_, ordinal)).first;
  }
  return *found->second;
}

std::shared_ptr<Encoder> Runtime::encoder(Device& device, CUstream stream) {
  unsigned long long id = 0;
  JGE_CALL(driver_, cuStreamGetId, stream, &id);
  const StreamKey key{&device, id};
  std::lock_guard lock(encoders_mutex_);
  if (auto found = by_stream_.find(key); found != by_stream_.end()) {
    encoders_.splice(encoders_.begin(), encoders_, found->second);
    return found->second->encoder;
  }
  encoders_.push_front({key, std::make_shared<Encoder>(device, stream)});
  by_stream_[key] = encoders_.begin();
  count(stats().encoders);
  // Nothing is lost with it: every call commits what it appended before it returns.
  if (encoders_.size() > kMaxEncoders) {
    by_stream_.erase(encoders_.back().key);
    encoders_.pop_back();
  }
  return encoders_.front().encoder;
}

PooledEncoder Runtime::borrow(Device& device) {
  {
    std::lock_guard lock(pool_mutex_);
    std::vector<OwnedEncoder>& idle = pool_[&device];
    if (!idle.empty()) {
      OwnedEncoder owned = std::move(idle.back());
      idle.pop_back();
      return PooledEncoder(*this, std::move(owned));
    }
  }
  CUstream stream = nullptr;
  JGE_CALL(driver_, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  OwnedEncoder owned;
  owned.stream = Stream(driver_, stream);
  owned.encoder = std::make_unique<Encoder>(device, stream);
  count(stats().encoders);
  return PooledEncoder(*this, std::move(owned));
}

PooledEncoder::~PooledEncoder() {
  try {
    std::lock_guard lock(runtime_.pool_mutex_);
    runtime_.pool_[&owned_.encoder->device()].push_back(std::move(owned_));
  } catch (const std::bad_alloc&) {
    // The stream is destroyed instead of kept.
  }
}

Runtime& host_runtime() {
  static Runtime* const runtime = [] {
    const Driver& driver = host_driver();
    JGE_CALL(driver, cuInit, 0);
    return new Runtime(driver);
  }();
  return *runtime;
}

Runtime& cuda_runtime() {
  const CudaDriver& cuda = cuda_driver();
  if (!cuda.table) {
    throw Error(Code::unavailable, "no GPU can be used: " + cuda.why_not);
  }
  static Runtime* const runtime = new Runtime(*cuda.table);
  return *runtime;
}

}  // namespace jge

// plugin/core/run/streams.cc: the encoders of one device's streams.
#include "core/run/streams.h"

#include <new>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/base/waiting.h"

namespace jge {

std::shared_ptr<Encoder> Streams::encoder(CUstream stream) {
  unsigned long long id = 0;
  JGE_CALL(device_.driver(), cuStreamGetId, stream, &id);
  std::lock_guard lock(mutex_);
  if (auto found = by_stream_id_.find(id); found != by_stream_id_.end()) {
    slots_.splice(slots_.begin(), slots_, found->second);
    return found->second->encoder;
  }
  slots_.push_front({id, std::make_shared<Encoder>(device_, stream)});
  try {
    by_stream_id_.emplace(id, slots_.begin());
  } catch (...) {
    slots_.pop_front();
    throw;
  }
  count(stats().encoders);
  std::shared_ptr<Encoder> made = slots_.front().encoder;
  if (slots_.size() > kMaxEncoders) drop_unused();
  return made;
}

void Streams::drop_unused() {
  // An encoder in use may have nodes that are not committed yet.
  for (auto slot = std::prev(slots_.end()); slot != slots_.begin(); --slot) {
    if (slot->encoder.use_count() > 1) continue;
    by_stream_id_.erase(slot->stream_id);
    slots_.erase(slot);
    return;
  }
}

PooledEncoder Streams::borrow() {
  {
    std::lock_guard lock(pool_mutex_);
    if (!pool_.empty()) {
      OwnedEncoder owned = std::move(pool_.back());
      pool_.pop_back();
      return PooledEncoder(*this, std::move(owned));
    }
  }
  const ContextScope scope(device_.driver(), device_.context());
  CUstream stream = nullptr;
  JGE_CALL(device_.driver(), cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  OwnedEncoder owned;
  owned.stream = Stream(device_.driver(), stream);
  owned.encoder = std::make_unique<Encoder>(device_, stream);
  count(stats().encoders);
  return PooledEncoder(*this, std::move(owned));
}

PooledEncoder::~PooledEncoder() {
  wait_for(streams_.device_.driver(), owned_.stream.get());
  try {
    std::lock_guard lock(streams_.pool_mutex_);
    streams_.pool_.push_back(std::move(owned_));
  } catch (const std::bad_alloc&) {
    // The stream is destroyed instead of kept.
  }
}

}  // namespace jge

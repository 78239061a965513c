// plugin/core/run/streams.cc: the encoders of one device's streams.
#include "core/run/streams.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "core/base/stats.h"
#include "core/base/waiting.h"

namespace jge {

std::shared_ptr<Encoder> Streams::encoder(CUstream stream) {
  unsigned long long id = 0;
  JGE_CALL(device_.driver(), cuStreamGetId, stream, &id);
  {
    std::lock_guard lock(mutex_);
    if (auto found = find(id)) return found;
  }
  auto made = std::make_shared<Encoder>(device_, stream, take_free_arena());
  std::shared_ptr<Encoder> dropped;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  if (auto found = find(id)) {  // another thread was faster
    keep_arena(*made);
    return found;
  }
  slots_.push_front({id, made});
  try {
    by_stream_id_.emplace(id, slots_.begin());
  } catch (...) {
    slots_.pop_front();
    throw;
  }
  count(stats().encoders);
  if (slots_.size() > kMaxEncoders) dropped = drop_unused();
  return find(id);
}

// The encoder of a stream, which becomes the one used last; the lock is held.
std::shared_ptr<Encoder> Streams::find(std::uint64_t stream_id) {
  const auto found = by_stream_id_.find(stream_id);
  if (found == by_stream_id_.end()) return nullptr;
  slots_.splice(slots_.begin(), slots_, found->second);
  if (slots_.size() >= kManyEncoders) found->second->encoder->share_arena();
  return found->second->encoder;
}

std::shared_ptr<Encoder> Streams::drop_unused() {
  // An encoder in use may have nodes that are not committed yet.
  for (auto slot = std::prev(slots_.end()); slot != slots_.begin(); --slot) {
    if (slot->encoder.use_count() > 1) continue;
    std::shared_ptr<Encoder> dropped = std::move(slot->encoder);
    keep_arena(*dropped);
    by_stream_id_.erase(slot->stream_id);
    slots_.erase(slot);
    return dropped;
  }
  return nullptr;
}

// For a later encoder; the lock is held.
void Streams::keep_arena(Encoder& encoder) {
  if (Arena arena = encoder.take_arena(); !arena.empty()) arenas_.push_back(std::move(arena));
}

// One of an encoder that is gone, if its work is over; otherwise an empty one.
Arena Streams::take_free_arena() {
  std::vector<Arena> arenas;
  {
    std::lock_guard lock(mutex_);
    arenas.swap(arenas_);
  }
  const auto free = std::ranges::find_if(
      arenas, [&](const Arena& arena) { return arena.is_free(device_.driver()); });
  Arena taken;
  if (free != arenas.end()) {
    taken = std::move(*free);
    arenas.erase(free);
  }
  std::lock_guard lock(mutex_);
  for (Arena& arena : arenas) arenas_.push_back(std::move(arena));
  return taken;
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

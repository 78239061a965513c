// plugin/core/run/streams.h: the encoders of one device's streams.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/base/handle.h"
#include "core/device/device.h"
#include "core/run/encoder.h"

namespace jge {

class PooledEncoder;

// Its encoders and what their callers may rely on: docs/plugin_invariants.md, 10 and 17.
class Streams {
 public:
  explicit Streams(Device& device) : device_(device) {}

  // The encoder of a stream that is not being captured, made at first use. Shared, since a stream
  // unused for long may be dropped from the table while a caller still holds its encoder.
  std::shared_ptr<Encoder> encoder(CUstream stream);

  // For callers without a stream: an encoder of their own until the result is destroyed.
  PooledEncoder borrow();

 private:
  friend class PooledEncoder;

  // More streams in use at once is no use case; the least recently used encoder goes. Its arena is
  // given to a later one: it cannot be freed (docs/plugin_invariants.md, 7).
  static constexpr std::size_t kMaxEncoders = 256;
  // From so many on, runs note their use of arenas, which costs a driver call.
  static constexpr std::size_t kManyEncoders = 128;

  struct Slot {
    std::uint64_t stream_id;
    std::shared_ptr<Encoder> encoder;
  };
  struct OwnedEncoder {
    Stream stream;
    std::unique_ptr<Encoder> encoder;
  };

  std::shared_ptr<Encoder> find(std::uint64_t stream_id);
  std::shared_ptr<Encoder> drop_unused();
  void keep_arena(Encoder& encoder);
  Arena take_free_arena();

  Device& device_;
  std::mutex mutex_;
  std::list<Slot> slots_;  // most recently used first
  // By cuStreamGetId: a recycled handle has a new one, so it never meets a stale encoder.
  std::unordered_map<std::uint64_t, std::list<Slot>::iterator> by_stream_id_;
  std::vector<Arena> arenas_;  // of encoders that are gone
  std::mutex pool_mutex_;
  std::vector<OwnedEncoder> pool_;
};

// Whatever is still queued on the encoder's stream has run when this is destroyed, also if its user
// failed half-way: the next borrower, and the owner of the memory, never meet it.
class PooledEncoder {
 public:
  PooledEncoder(Streams& streams, Streams::OwnedEncoder owned)
      : streams_(streams), owned_(std::move(owned)) {}
  ~PooledEncoder();
  PooledEncoder(const PooledEncoder&) = delete;
  PooledEncoder& operator=(const PooledEncoder&) = delete;

  Encoder* operator->() { return owned_.encoder.get(); }

 private:
  Streams& streams_;
  Streams::OwnedEncoder owned_;
};

}  // namespace jge

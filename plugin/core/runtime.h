// plugin/core/runtime.h: the devices of a driver and the encoders of their streams.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/encoder.h"

namespace jge {

// An encoder with a stream of its own, borrowed from a pool.
class PooledEncoder;

// Everything is made at first use and lives as long as the process, since driver handles must not
// be destroyed while other threads or the driver itself are shutting down.
class Runtime {
 public:
  explicit Runtime(const Driver& driver) : driver_(driver) {}

  const Driver& driver() const { return driver_; }

  // Throws Error (not_found) for an ordinal that does not exist.
  Device& device(int ordinal);

  // The encoder of a stream that is not being captured. Shared, since a stream unused for long may
  // be dropped from the table while a caller still holds its encoder.
  std::shared_ptr<Encoder> encoder(Device& device, CUstream stream);

  // For callers without a stream: an encoder that nobody else uses until the result is destroyed.
  PooledEncoder borrow(Device& device);

 private:
  friend class PooledEncoder;

  // More streams than this in use at once is no use case; the least recently used encoder goes.
  static constexpr std::size_t kMaxEncoders = 256;

  // The device, because each has a default stream; cuStreamGetId, because a recycled handle has a
  // new one and so never meets a stale encoder.
  using StreamKey = std::pair<Device*, std::uint64_t>;
  struct Slot {
    StreamKey key;
    std::shared_ptr<Encoder> encoder;
  };
  struct OwnedEncoder {
    Stream stream;
    std::unique_ptr<Encoder> encoder;
  };

  const Driver& driver_;
  std::mutex devices_mutex_;
  std::unordered_map<int, std::unique_ptr<Device>> devices_;
  std::mutex encoders_mutex_;
  std::list<Slot> encoders_;  // most recently used first
  std::map<StreamKey, std::list<Slot>::iterator> by_stream_;
  std::mutex pool_mutex_;
  std::unordered_map<Device*, std::vector<OwnedEncoder>> pool_;
};

class PooledEncoder {
 public:
  PooledEncoder(Runtime& runtime, Runtime::OwnedEncoder owned)
      : runtime_(runtime), owned_(std::move(owned)) {}
  ~PooledEncoder();
  PooledEncoder(const PooledEncoder&) = delete;
  PooledEncoder& operator=(const PooledEncoder&) = delete;

  Encoder* operator->() { return owned_.encoder.get(); }

 private:
  Runtime& runtime_;
  Runtime::OwnedEncoder owned_;
};

// The software driver's.
Runtime& host_runtime();
// The NVIDIA driver's; throws Error (unavailable) where there is none.
Runtime& cuda_runtime();

}  // namespace jge

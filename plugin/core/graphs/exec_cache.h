// plugin/core/graphs/exec_cache.h: the executable graphs of one device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/graphs/exec.h"

namespace jge {

// A graph of fewer nodes gains nothing over launching them.
inline constexpr std::size_t kMinGraphNodes = 2;

// Owns every exec. Programs hold weak pointers: an eviction frees memory at once, and the program
// makes the exec anew. It may hold several of one topology: an exec is leased to one user at a
// time, so that two never patch each other's. Bounded in nodes and in bytes of device memory. A
// full cache keeps what it has until another graph has been asked for twice in the meantime, so
// that a loop over more than fits instantiates nothing. No driver call is made under its lock
// (docs/plugin_invariants.md, 3 to 6, 13, 23 and 24).
class ExecCache {
 public:
  // Tells the nodes of an exec something new and returns how many that changed.
  using Update = std::function<std::uint64_t(Exec&)>;
  // Adds all nodes to a new exec.
  using Build = std::function<void(Exec&)>;
  // On the cache's clock, which goes on with every use of an exec.
  using Moment = std::uint64_t;

  // Device memory that graphs take, as a driver does not tell: measured with driver 580 on an H200
  // (benchmarks/exec_memory.py).
  static constexpr std::size_t kBytesOfExec = 116 << 10, kBytesOfNode = 2500;

  explicit ExecCache(std::size_t max_bytes = std::size_t(-1)) : max_bytes_(max_bytes) {}

  // An exec of this topology, leased to the caller: a free one, updated, or else a new one, which
  // is kept. For it only execs may go that nothing has used since `last_run`, when the caller last
  // needed it (0: never; by default, when this topology was last asked for). Null if the nodes are
  // to be launched one by one: the topology cannot be updated later or has not been seen often
  // enough, or there is no place or memory for the graph, which is not tried at each call.
  std::shared_ptr<Exec> acquire(const Driver& driver, const Topology& topology,
                                const Update& update, const Build& build,
                                std::optional<Moment> last_run = std::nullopt);

  // False if the driver refused a change: the exec is then gone from the cache.
  bool patch(Exec& exec, const Update& update);

  // The next moment; takes no lock.
  Moment now() { return clock_.fetch_add(1, std::memory_order_relaxed); }
  // Marks the exec as just used; takes no lock.
  void touch(Exec& exec) { exec.last_used.store(now(), std::memory_order_relaxed); }

  // Ends a lease: the exec stays, for the next user of its topology.
  void release(const Exec& exec);

  // Forgets an exec.
  void drop(const Exec& exec);

  // Evicts all.
  void trim();

  // Whether a graph of so many nodes fits without an eviction.
  bool has_room(std::size_t nodes) const;

  std::size_t execs() const;
  std::size_t nodes() const;

 private:
  struct Entry {
    std::shared_ptr<Exec> exec;
    bool leased;
  };
  // What is known of a topology that was asked for and not there.
  struct Sighting {
    std::uint32_t count = 0;
    Moment last = 0;
    std::uint32_t refusals = 0;  // in a row, as far as they count
    std::uint32_t skip = 0;      // so many times it is not tried
    bool out_of_memory = false;  // why it was refused last; else there was no place
  };
  struct HashOf {
    std::size_t operator()(const Hash128& hash) const { return hash.low; }
  };
  using Entries = std::unordered_multimap<Hash128, Entry, HashOf>;
  using Dropped = std::vector<std::shared_ptr<Exec>>;
  struct Use {
    Moment last;
    Entries::iterator entry;
  };
  class Place;

  static constexpr std::size_t kMaxSightings = 4096;
  // A graph that was refused is tried at the next call, and then after twice as many each time, up
  // to these. What may have a place is soon seen; what fits no memory costs time.
  static constexpr std::uint32_t kMostSkipped = 64, kMostSkippedOutOfMemory = 1 << 16;

  // A free one of this topology, leased now; null if there is none.
  std::shared_ptr<Exec> lease(const Topology& topology);
  // Notes that a topology is asked for. Whether it is to be made now; `last_run` becomes the time
  // it was last asked for, where it has no value.
  bool is_due(const Topology& topology, std::optional<Moment>& last_run);
  void refuse(const Topology& topology, bool out_of_memory);
  std::shared_ptr<Exec> make(const Driver& driver, const Build& build, Moment last_run);
  bool make_room(std::size_t nodes, Moment last_run, Dropped& dropped);
  // Takes over a new exec, leased to the caller.
  void keep(std::shared_ptr<Exec> exec);
  Sighting& sighting(const Topology& topology);
  Entries::iterator find(const Exec& exec);
  std::shared_ptr<Exec> erase(Entries::iterator entry);
  static std::size_t max_nodes();
  bool fits(std::size_t execs, std::size_t nodes) const;
  bool fits(std::size_t nodes) const;
  std::vector<Use> unused_since(Moment moment);
  template <class Which>
  bool give_up(Which&& which);
  void evict(Entries::iterator entry, Dropped& dropped);

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<Hash128, Sighting, HashOf> sightings_;
  std::size_t nodes_ = 0;                      // of the entries
  std::size_t coming_ = 0, coming_nodes_ = 0;  // execs that are being made
  std::atomic<Moment> clock_{1};
};

}  // namespace jge

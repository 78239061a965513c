// plugin/core/graphs/exec_cache.h: the executable graphs of one device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/graphs/exec.h"

namespace jge {

// A graph of fewer nodes gains nothing over launching them.
inline constexpr std::size_t kMinGraphNodes = 2;

// Owns every exec. Programs hold weak pointers: an eviction frees memory at once, and the program
// makes the exec anew. It may hold several of one topology: an exec is leased to one user at a
// time, so that two never patch each other's. Bounded in execs and in nodes; the least recently
// used goes first, leased or not. No driver call is made under its lock (docs/plugin_invariants.md,
// 3 to 6 and 13).
class ExecCache {
 public:
  // Tells the nodes of an exec something new and returns how many that changed.
  using Update = std::function<std::uint64_t(Exec&)>;
  // Adds all nodes to a new exec.
  using Build = std::function<void(Exec&)>;

  // An exec of this topology, leased to the caller: a free one, updated, or else a new one, which
  // is kept. Null if the nodes are to be launched one by one: the topology cannot be
  // updated later or has not been seen often enough, or there is no memory for the graph, even
  // without the less recently used half of the cache.
  std::shared_ptr<Exec> acquire(const Driver& driver, const Topology& topology,
                                const Update& update, const Build& build);

  // False if the driver refused a change: the exec is then gone from the cache.
  bool patch(Exec& exec, const Update& update);

  // Marks the exec as just used; takes no lock.
  void touch(Exec& exec) {
    exec.last_used.store(clock_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
  }

  // Ends a lease: the exec stays, for the next user of its topology.
  void release(const Exec& exec);

  // Forgets an exec.
  void drop(const Exec& exec);

  // Evicts the less recently used half.
  void trim();

  std::size_t execs() const;
  std::size_t nodes() const;

 private:
  struct Entry {
    std::shared_ptr<Exec> exec;
    bool leased;
  };
  struct HashOf {
    std::size_t operator()(const Hash128& hash) const { return hash.low; }
  };
  using Dropped = std::vector<std::shared_ptr<Exec>>;

  static constexpr std::size_t kMaxNodes = 1 << 18;
  static constexpr std::size_t kMaxSightings = 4096;

  // A free one of this topology, leased now; null if there is none.
  std::shared_ptr<Exec> lease(const Topology& topology);
  // How often a topology has been asked for before, counting this time from now on.
  std::uint32_t sightings(const Topology& topology);
  std::shared_ptr<Exec> make(const Driver& driver, const Build& build);
  // Takes over a new exec, leased to the caller, and evicts what is over the bounds.
  void keep(std::shared_ptr<Exec> exec);
  Entry* find(const Exec& exec);
  void evict_until(std::size_t execs, std::size_t nodes, Dropped& dropped);

  mutable std::mutex mutex_;
  std::unordered_multimap<Hash128, Entry, HashOf> entries_;
  std::unordered_map<Hash128, std::uint32_t, HashOf> sightings_;
  std::size_t nodes_ = 0;
  std::atomic<std::uint64_t> clock_{1};
};

}  // namespace jge

// plugin/core/graphs/exec_cache.cc: the executable graphs of one device.
#include "core/graphs/exec_cache.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/stats.h"

namespace jge {

std::shared_ptr<Exec> ExecCache::acquire(const Driver& driver, const Topology& topology,
                                         const Update& update, const Build& build) {
  // An executable graph of it could not be used again, if the driver made one at all.
  if (!topology.updatable()) {
    count(stats().fallbacks_not_updatable);
    return nullptr;
  }
  if (auto exec = lease(topology)) {
    if (patch(*exec, update)) return exec;
  } else if (sightings(topology) < std::uint32_t(options().graph_after)) {
    return nullptr;
  }
  auto exec = make(driver, build);
  if (exec) keep(exec);
  return exec;
}

bool ExecCache::patch(Exec& exec, const Update& update) {
  try {
    const std::uint64_t changed = update(exec);
    if (changed > 0) count(stats().nodes_patched, changed);
    return true;
  } catch (const Error&) {
    count(stats().fallbacks_update_refused);
    drop(exec);
    return false;
  }
}

// Null if there is no memory for it.
std::shared_ptr<Exec> ExecCache::make(const Driver& driver, const Build& build) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      auto exec = std::make_shared<Exec>(driver);
      build(*exec);
      exec->instantiate();
      return exec;
    } catch (const Error& error) {
      if (error.code() != Code::resource_exhausted) throw;
      trim();
    }
  }
  count(stats().fallbacks_out_of_memory);
  return nullptr;
}

std::shared_ptr<Exec> ExecCache::lease(const Topology& topology) {
  std::lock_guard lock(mutex_);
  auto [first, last] = entries_.equal_range(topology.hash());
  for (auto entry = first; entry != last; ++entry) {
    if (entry->second.leased || !(entry->second.exec->topology() == topology)) continue;
    entry->second.leased = true;
    touch(*entry->second.exec);
    count(stats().exec_hits);
    return entry->second.exec;
  }
  count(stats().exec_misses);
  return nullptr;
}

void ExecCache::keep(std::shared_ptr<Exec> exec) {
  Dropped dropped;  // destroyed after the lock is released: the driver takes its time
  std::lock_guard lock(mutex_);
  const std::size_t most = static_cast<std::size_t>(options().graph_cache_size.load());
  evict_until(most > 0 ? most - 1 : 0, kMaxNodes - std::min<std::size_t>(kMaxNodes, exec->size()),
              dropped);
  nodes_ += exec->size();
  const Hash128 hash = exec->topology().hash();
  touch(*exec);
  entries_.emplace(hash, Entry{std::move(exec), true});
}

void ExecCache::release(const Exec& exec) {
  std::lock_guard lock(mutex_);
  if (Entry* entry = find(exec)) entry->leased = false;
}

void ExecCache::drop(const Exec& exec) {
  std::shared_ptr<Exec> dropped;
  std::lock_guard lock(mutex_);
  auto [first, last] = entries_.equal_range(exec.topology().hash());
  for (auto entry = first; entry != last; ++entry) {
    if (entry->second.exec.get() != &exec) continue;
    dropped = std::move(entry->second.exec);
    nodes_ -= dropped->size();
    entries_.erase(entry);
    return;
  }
}

void ExecCache::trim() {
  Dropped dropped;
  std::lock_guard lock(mutex_);
  evict_until(entries_.size() / 2, nodes_, dropped);
}

std::uint32_t ExecCache::sightings(const Topology& topology) {
  std::lock_guard lock(mutex_);
  // Forgetting costs a direct launch; remembering for ever would cost memory.
  if (sightings_.size() >= kMaxSightings) sightings_.clear();
  return sightings_[topology.hash()]++;
}

std::size_t ExecCache::execs() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

std::size_t ExecCache::nodes() const {
  std::lock_guard lock(mutex_);
  return nodes_;
}

ExecCache::Entry* ExecCache::find(const Exec& exec) {
  auto [first, last] = entries_.equal_range(exec.topology().hash());
  for (auto entry = first; entry != last; ++entry) {
    if (entry->second.exec.get() == &exec) return &entry->second;
  }
  return nullptr;
}

void ExecCache::evict_until(std::size_t execs, std::size_t nodes, Dropped& dropped) {
  while (!entries_.empty() && (entries_.size() > execs || nodes_ > nodes)) {
    // A scan, since evictions are rare and each costs a graph.
    auto oldest = std::ranges::min_element(
        entries_, {}, [](const auto& entry) { return entry.second.exec->last_used.load(); });
    nodes_ -= oldest->second.exec->size();
    dropped.push_back(std::move(oldest->second.exec));
    entries_.erase(oldest);
    count(stats().exec_evictions);
  }
}

}  // namespace jge

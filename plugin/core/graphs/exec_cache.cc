// plugin/core/graphs/exec_cache.cc: the executable graphs of one device.
#include "core/graphs/exec_cache.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/options.h"
#include "core/base/stats.h"

namespace jge {

// Room for an exec that is being made, given back when it is kept or could not be made.
class ExecCache::Place {
 public:
  // Makes room, if need be by evictions. Taken or not, see taken().
  Place(ExecCache& cache, std::size_t nodes, Moment last_run) : cache_(cache), nodes_(nodes) {
    Dropped dropped;  // destroyed after the lock is released: the driver takes its time
    std::lock_guard lock(cache.mutex_);
    taken_ = cache.make_room(nodes, last_run, dropped);
    if (!taken_) return;
    ++cache.coming_;
    cache.coming_nodes_ += nodes;
  }
  ~Place() {
    if (!taken_) return;
    std::lock_guard lock(cache_.mutex_);
    --cache_.coming_;
    cache_.coming_nodes_ -= nodes_;
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  bool taken() const { return taken_; }

 private:
  ExecCache& cache_;
  std::size_t nodes_;
  bool taken_ = false;
};

std::shared_ptr<Exec> ExecCache::acquire(const Driver& driver, const Topology& topology,
                                         const Update& update, const Build& build,
                                         std::optional<Moment> last_run) {
  // An executable graph of it could not be used again, if the driver made one at all.
  if (!topology.updatable()) {
    count(stats().fallbacks_not_updatable);
    return nullptr;
  }
  auto exec = lease(topology);
  if (exec && patch(*exec, update)) return exec;
  // What was there is made anew at once.
  if (!exec && !is_due(topology, last_run)) return nullptr;
  const Place place(*this, topology.size(), last_run.value_or(0));
  if (!place.taken()) {
    refuse(topology, false);
    return nullptr;
  }
  exec = make(driver, build, last_run.value_or(0));
  if (!exec) {
    refuse(topology, true);
    return nullptr;
  }
  keep(exec);
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

// Null if there is no memory for it, even without what no program holds or nothing has used since
// the last run.
std::shared_ptr<Exec> ExecCache::make(const Driver& driver, const Build& build, Moment last_run) {
  for (;;) {
    try {
      auto exec = std::make_shared<Exec>(driver);
      build(*exec);
      exec->instantiate();
      return exec;
    } catch (const Error& error) {
      if (error.code() != Code::resource_exhausted) throw;
      if (!give_up([=](const Entry& entry) {
            return !entry.leased || entry.exec->last_used.load() < last_run;
          })) {
        return nullptr;
      }
    }
  }
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
  std::lock_guard lock(mutex_);
  sighting(exec->topology()).refusals = 0;
  nodes_ += exec->size();
  touch(*exec);
  const Hash128 hash = exec->topology().hash();
  entries_.emplace(hash, Entry{std::move(exec), true});
}

void ExecCache::release(const Exec& exec) {
  std::lock_guard lock(mutex_);
  if (auto entry = find(exec); entry != entries_.end()) entry->second.leased = false;
}

void ExecCache::drop(const Exec& exec) {
  std::shared_ptr<Exec> dropped;
  std::lock_guard lock(mutex_);
  if (auto entry = find(exec); entry != entries_.end()) dropped = erase(entry);
}

void ExecCache::trim() {
  give_up([](const Entry&) { return true; });
}

// Evicts all such; returns whether there were any.
template <class Which>
bool ExecCache::give_up(Which&& which) {
  Dropped dropped;
  std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto here = entry++;
    if (which(here->second)) evict(here, dropped);
  }
  return !dropped.empty();
}

bool ExecCache::is_due(const Topology& topology, std::optional<Moment>& last_run) {
  std::lock_guard lock(mutex_);
  Sighting& seen = sighting(topology);
  if (!last_run) last_run = seen.last;
  seen.last = now();
  if (seen.count++ < std::uint32_t(options().graph_after)) return false;
  if (seen.skip == 0) return true;
  --seen.skip;
  count(seen.out_of_memory ? stats().fallbacks_out_of_memory : stats().fallbacks_cache_full);
  return false;
}

void ExecCache::refuse(const Topology& topology, bool out_of_memory) {
  std::lock_guard lock(mutex_);
  Sighting& seen = sighting(topology);
  const std::uint32_t most = out_of_memory ? kMostSkippedOutOfMemory : kMostSkipped;
  seen.skip = std::min(most, (std::uint32_t{1} << seen.refusals) - 1);
  seen.refusals = std::min<std::uint32_t>(seen.refusals + 1, 16);
  seen.out_of_memory = out_of_memory;
  count(out_of_memory ? stats().fallbacks_out_of_memory : stats().fallbacks_cache_full);
}

ExecCache::Sighting& ExecCache::sighting(const Topology& topology) {
  // Forgetting costs a direct launch; remembering for ever would cost memory.
  if (sightings_.size() >= kMaxSightings && !sightings_.contains(topology.hash())) {
    sightings_.clear();
  }
  return sightings_[topology.hash()];
}

std::size_t ExecCache::execs() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

std::size_t ExecCache::nodes() const {
  std::lock_guard lock(mutex_);
  return nodes_;
}

bool ExecCache::has_room(std::size_t nodes) const {
  std::lock_guard lock(mutex_);
  return fits(nodes);
}

ExecCache::Entries::iterator ExecCache::find(const Exec& exec) {
  auto [first, last] = entries_.equal_range(exec.topology().hash());
  for (auto entry = first; entry != last; ++entry) {
    if (entry->second.exec.get() == &exec) return entry;
  }
  return entries_.end();
}

std::shared_ptr<Exec> ExecCache::erase(Entries::iterator entry) {
  std::shared_ptr<Exec> exec = std::move(entry->second.exec);
  nodes_ -= exec->size();
  entries_.erase(entry);
  return exec;
}

std::size_t ExecCache::max_nodes() {
  return static_cast<std::size_t>(options().graph_cache_size.load());
}

// Whether the cache may hold so much altogether.
bool ExecCache::fits(std::size_t execs, std::size_t nodes) const {
  return nodes <= max_nodes() && execs * kBytesOfExec + nodes * kBytesOfNode <= max_bytes_;
}

// Whether it has a place for one more exec.
bool ExecCache::fits(std::size_t nodes) const {
  return fits(entries_.size() + coming_ + 1, nodes_ + coming_nodes_ + nodes);
}

// False if it would take what has been used since the last run; then nothing goes.
bool ExecCache::make_room(std::size_t nodes, Moment last_run, Dropped& dropped) {
  const std::size_t most = max_nodes();
  // The option may have been lowered.
  if (nodes_ > most) {
    for (const Use& use : unused_since(now())) {
      if (nodes_ > most) evict(use.entry, dropped);
    }
  }
  if (fits(nodes)) return true;
  const std::vector<Use> unused = unused_since(last_run);
  std::size_t unused_nodes = 0;
  for (const Use& use : unused) unused_nodes += use.entry->second.exec->size();
  if (!fits(entries_.size() + coming_ - unused.size() + 1,
            nodes_ + coming_nodes_ - unused_nodes + nodes)) {
    return false;
  }
  for (const Use& use : unused) {
    if (!fits(nodes)) evict(use.entry, dropped);
  }
  return true;
}

// What was last used before then, the least recently used first.
std::vector<ExecCache::Use> ExecCache::unused_since(Moment moment) {
  // A scan, since evictions are rare and each costs a graph.
  std::vector<Use> found;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const Moment last = entry->second.exec->last_used.load(std::memory_order_relaxed);
    if (last < moment) found.push_back({last, entry});
  }
  std::ranges::sort(found, {}, &Use::last);
  return found;
}

void ExecCache::evict(Entries::iterator entry, Dropped& dropped) {
  dropped.push_back(erase(entry));
  count(stats().exec_evictions);
}

}  // namespace jge

// plugin/core/base/stats.h: what the core has done since the process began or the last reset.
#pragma once

#include <atomic>
#include <cstdint>

namespace jge {

// X(name): one counter each, in the order they are shown.
#define JGE_COUNTERS(X)                                                                          \
  X(programs)                 /* programs decoded */                                             \
  X(scratch_bytes)            /* memory for their inner values, of all of them together */       \
  X(images_loaded)            /* images loaded, once per device */                               \
  X(encoders)                 /* encoders made */                                                \
  X(commits)                  /* batches handed over */                                          \
  X(nodes)                    /* nodes in these batches */                                       \
  X(bytes)                    /* bytes they touch, each once per batch or program run */         \
  X(direct_launches)          /* nodes handed straight onto a stream */                          \
  X(graph_launches)           /* launches of executable graphs */                                \
  X(instantiations)           /* executable graphs made */                                       \
  X(nodes_patched)            /* nodes of executable graphs whose arguments changed */           \
  X(exec_hits)                /* graphs found in the cache */                                    \
  X(exec_misses)              /* graphs looked for in vain */                                    \
  X(exec_evictions)           /* executable graphs evicted */                                    \
  X(fallbacks_out_of_memory)  /* graphs launched node by node for lack of memory */              \
  X(fallbacks_cache_full)     /* graphs launched node by node: the cache is full of used ones */ \
  X(fallbacks_update_refused) /* graphs made anew because the driver refused a change */         \
  X(fallbacks_not_updatable)  /* batches launched node by node: a capture is not patchable */    \
  X(captured_nodes)           /* nodes added to another's capture */

struct Stats {
  // Apart, so that devices that work at the same time do not wait for each other's cache lines.
#define JGE_DECLARE(name) alignas(64) std::atomic<std::uint64_t> name{0};
  JGE_COUNTERS(JGE_DECLARE)
#undef JGE_DECLARE

  void reset() {
#define JGE_RESET(name) name.store(0, std::memory_order_relaxed);
    JGE_COUNTERS(JGE_RESET)
#undef JGE_RESET
  }
};

inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) {
  counter.fetch_add(by, std::memory_order_relaxed);
}

// One for the process: both drivers count here.
inline Stats& stats() {
  static Stats instance;
  return instance;
}

// Of one batch, or of all batches of a program's run, once it is handed over.
inline void count_batches(std::uint64_t batches, std::uint64_t nodes, std::uint64_t bytes) {
  count(stats().commits, batches);
  count(stats().nodes, nodes);
  count(stats().bytes, bytes);
}

}  // namespace jge
